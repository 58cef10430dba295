"""GGUF files: opening, metadata, quant types and blocks, writing. numpy only."""
