"""E23: of two requests with one id the second is refused; a cancel meets the exact id only."""

from __future__ import annotations

import pytest

from baton_engine import DuplicateRequest
from tests.support.engine_driver import add, ask, drain, token_ids
from tests.support.tiny_model import tiny_engine


def test_the_second_is_refused_and_the_first_goes_on() -> None:
    engine = tiny_engine()
    add(engine, ask("one", [1, 2]))
    with pytest.raises(DuplicateRequest, match="'one'"):
        add(engine, ask("one", [3, 4]))
    engine.core.step()
    with pytest.raises(DuplicateRequest):
        add(engine, ask("one", [3, 4]))
    assert len(token_ids(drain(engine)["one"])) == 23  # and one in the step above
    add(engine, ask("one", [3, 4]))  # the id is free again
    assert len(token_ids(drain(engine)["one"])) == 24


def test_a_prefix_of_an_id_is_another_id() -> None:
    engine = tiny_engine()
    add(engine, ask("abc-1", [1, 2]))
    add(engine, ask("abc-12", [1, 2]))
    engine.core.step()
    assert engine.core.cancel("abc-")[0].found is False
    assert engine.core.cancel("abc-1")[0].found is True
    assert len(drain(engine)["abc-12"]) == 23
