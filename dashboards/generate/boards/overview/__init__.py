"""Overview: the state, speed and utilization of every server."""
