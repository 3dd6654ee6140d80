"""What is shown of a target: immutable, and the same for every kind of server."""
