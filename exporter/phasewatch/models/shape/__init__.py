"""From config.json, tensors or GGUF keys to parameters, KV cache bytes and bytes read per step. Reads no files."""
