"""The synthetic requests that measure an Ollama: when to send one, what to send, and what the answer means."""
