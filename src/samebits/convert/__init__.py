"""Model files written: converted from safetensors to GGUF, and quantized."""
