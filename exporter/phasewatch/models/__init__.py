"""What a model costs: bytes that a step reads and operations that a token takes, and where they are known from."""
