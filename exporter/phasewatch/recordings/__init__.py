"""Recordings of a server: format, recording and replay."""
