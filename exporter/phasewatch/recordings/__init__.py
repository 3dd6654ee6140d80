"""Recordings of a server: their format, making them, replaying them."""
