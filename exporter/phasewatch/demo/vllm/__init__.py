"""A simulated vLLM."""
