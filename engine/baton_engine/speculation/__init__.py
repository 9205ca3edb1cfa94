"""Speculative decoding: guess some tokens of an answer, compute them in one step, keep those that were right.

What a request gets is exactly what it would get without: a guess is kept only where the sampler, with the
request's own rules and numbers, chooses the same token. Guesses come from the text itself (`ngram.py`) or
from a small model (`draft_model.py`).
"""
