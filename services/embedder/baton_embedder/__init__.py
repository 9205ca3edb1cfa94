"""Embeddings as an inference service of its own."""
