"""The parts a decoder model is made of: linear, norm, rotary, mlp, attention. They know tensors only."""
