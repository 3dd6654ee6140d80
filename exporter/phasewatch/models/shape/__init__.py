"""From config.json to parameters, layers, bytes of KV cache and bytes read per step."""
