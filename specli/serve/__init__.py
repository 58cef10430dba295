"""Many clients over HTTP on one engine: llama.cpp's server routes and OpenAI's (docs/serving.md)."""
