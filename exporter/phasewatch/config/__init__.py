"""The configuration: its schema, resolution into settings, and checks across keys."""
