"""E24: empty messages and an empty prompt are refused, and the engine lives."""

from __future__ import annotations

import pytest

from baton_engine import EngineRequest, InvalidParameter
from tests.support.engine_driver import add, ask, drain, token_ids
from tests.support.tiny_model import tiny_engine


@pytest.mark.parametrize(
    ("asked", "param"),
    [(ask("a", []), "prompt"), (EngineRequest("a", messages=[]), "messages"), (EngineRequest("a"), "prompt")],
    ids=["empty prompt", "empty messages", "neither"],
)
def test_refused(asked: EngineRequest, param: str) -> None:
    engine = tiny_engine()
    with pytest.raises(InvalidParameter) as caught:
        add(engine, asked)
    assert caught.value.param == param
    add(engine, ask("a", [1]))
    assert len(token_ids(drain(engine)["a"])) == 24
