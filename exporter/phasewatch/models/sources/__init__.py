"""Where the bytes of a model are read: folders, safetensors, GGUF, the hub cache, the configuration."""
