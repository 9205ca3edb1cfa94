"""E7: min_tokens 200 with stop "\\n": stops of every kind are ignored until there are 200 tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.engine_driver import GREEDY, add, ask, drain, script_tokens, text, token_ids
from tests.support.tiny_model import EOS, TINY_CONFIG, TinyCheckpoint, tiny_engine

CHECKPOINT = TinyCheckpoint(config=TINY_CONFIG | {"max_position_embeddings": 512})
LONG = replace(GREEDY, max_tokens=300)


def test_a_stop_string_is_ignored_for_200_tokens() -> None:
    engine = tiny_engine(CHECKPOINT)
    script_tokens(engine, lambda n: ord("\n") if n % 9 == 8 else ord("a") + n % 9)
    add(engine, ask("a", [5], replace(LONG, stop=("\n",), min_tokens=200)))
    deltas = drain(engine)["a"]
    assert (deltas[-1].finish_reason, deltas[-1].stop_reason) == ("stop", "\n")
    assert text(deltas) == "abcdefgh\n" * 22 + "abcdefgh"  # the newline at token 207 is the first after 200
    assert len(token_ids(deltas)) == 207


@pytest.mark.parametrize("min_tokens", [0, 1, 5, 200])
@pytest.mark.parametrize("kind", ["end token", "stop id"])
def test_the_end_token_and_stop_ids_can_not_come_before(min_tokens: int, kind: str) -> None:
    engine = tiny_engine(CHECKPOINT)
    end = EOS if kind == "end token" else 65
    script_tokens(engine, lambda n: end)
    stops = () if kind == "end token" else (end,)
    sampling = replace(LONG, ignore_eos=False, min_tokens=min_tokens, stop_token_ids=stops)
    add(engine, ask("a", [5], sampling))
    ids = token_ids(drain(engine)["a"])
    assert ids.index(end) == min_tokens == len(ids) - 1
