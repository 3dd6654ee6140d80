"""The table of metrics, and how each is read from a snapshot."""
