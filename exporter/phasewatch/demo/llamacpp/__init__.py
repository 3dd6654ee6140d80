"""A simulated llama-server."""
