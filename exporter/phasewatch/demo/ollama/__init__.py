"""A simulated Ollama: its API, its scheduler, the cost of requests, and a ledger of the harm that they do."""
