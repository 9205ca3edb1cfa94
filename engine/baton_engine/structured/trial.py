"""A program of its own: compiles grammars from standard input, one a line, and answers each with a line.

The mask library counts its work, but not all of it: some texts of a few hundred bytes keep it busy for
hours, and nothing can stop a thread. A process can be ended. So each new grammar is compiled here first, over
a vocabulary of single bytes; `trials.py` has the other end. Imports nothing of ours: it starts in 50 ms.
"""

import json
import resource
import sys

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

END = 256
MEMORY_BYTES = 2 * 2**30


class Bytes:
    bos_token_id = None
    eos_token_id = END
    tokens = tuple(bytes([byte]) for byte in range(256)) + (b"<end>",)
    special_token_ids = (END,)

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


def complaint(vocabulary: LLTokenizer, grammar: str, limits: LLParserLimits) -> str:
    """Why the grammar can't be used; empty if it can."""
    matcher = LLMatcher(vocabulary, grammar, log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()
    return matcher.get_error()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    vocabulary = LLTokenizer(TokenizerWrapper(Bytes()))
    limits = LLParserLimits(**json.loads(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(complaint(vocabulary, json.loads(line), limits)), flush=True)


if __name__ == "__main__":
    main()
