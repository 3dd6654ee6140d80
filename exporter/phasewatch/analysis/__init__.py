"""Pure functions from samples to figures; they know no server by name."""
