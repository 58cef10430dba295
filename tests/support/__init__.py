"""What several tests share: tiny model files, random quant blocks. Nothing here is downloaded or read from disk."""
