"""Pure functions from samples to figures, the same for every kind of server."""
