"""Stop 6, the inference router: which replica of a model answers."""
