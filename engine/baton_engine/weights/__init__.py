"""Model weights: Hugging Face folders and GGUF files behind one face, `Checkpoint`."""
