"""A simulated Ollama: its API, its scheduler, what requests cost, and a ledger of the harm they do."""
