"""Model weights: Hugging Face folders and GGUF files behind one face, `Checkpoint`."""

from baton_engine.weights.checkpoint import Checkpoint, open_checkpoint

__all__ = ["Checkpoint", "open_checkpoint"]
