"""E25: a chat template that raises for this order of roles: a refusal with the template's own message."""

from __future__ import annotations

import pytest

from baton_engine import EngineRequest, RequestRejected
from tests.support.engine_driver import add
from tests.support.tiny_model import tiny_engine


def test_the_refusal_carries_the_template_s_words() -> None:
    engine = tiny_engine()
    asked = EngineRequest("a", messages=[{"role": "assistant", "content": "me first"}])
    with pytest.raises(RequestRejected, match="conversation must not begin with the assistant") as caught:
        add(engine, asked)
    assert caught.value.param == "messages"
    assert not engine.core.has_work
