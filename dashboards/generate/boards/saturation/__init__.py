"""Saturation: why requests wait, and what to change."""
