"""The llama-server processes that run an Ollama's models (0.30 and newer): which there are, and what each runs."""
