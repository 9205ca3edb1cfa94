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
NUM_STEPS = 8
"""Far enough to be inside the first name of an object: some bounds show only there."""


class Bytes:
    bos_token_id = None
    eos_token_id = END
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")
    special_token_ids = (END,)

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


def complaint(vocabulary: LLTokenizer, grammar: str, limits: LLParserLimits) -> str:
    """Why the grammar can't be used; empty if it can."""
    matcher = LLMatcher(vocabulary, grammar, log_level=0, limits=limits)
    for _ in range(NUM_STEPS):
        if matcher.is_stopped():
            break
        allowed = int.from_bytes(matcher.compute_bitmask(), "little") & ~(1 << END)
        if not allowed:
            break
        matcher.consume_token((allowed & -allowed).bit_length() - 1)  # the lowest bit that is set
    return matcher.get_error()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    vocabulary = LLTokenizer(TokenizerWrapper(Bytes()))
    limits = LLParserLimits(**json.loads(sys.argv[1]))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(complaint(vocabulary, json.loads(line), limits)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
