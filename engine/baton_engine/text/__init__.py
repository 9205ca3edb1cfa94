"""Text in and out of the model: tokenizer, chat template, streaming detokenizer."""

from baton_engine.text.detokenizer import Chunk, StreamDecoder
from baton_engine.text.tokenizer import Tokenizer

__all__ = ["Tokenizer", "StreamDecoder", "Chunk"]
