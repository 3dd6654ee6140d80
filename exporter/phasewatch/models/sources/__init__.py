"""Sources of a model's costs: its folder, safetensors files, the hub cache, Ollama's /api/show, the configuration."""
