"""E25: a template that raises for this role order (vllm#17119).

Right: 400 with the template's message.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from baton_engine.errors import RequestRejected
from baton_engine.text import Tokenizer
from tests.support.tiny_text import tiny_tokenizer

STRICT = """
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' }}
{%- endfor %}
"""


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return tiny_tokenizer(tmp_path, chat_template=STRICT)


@pytest.mark.parametrize("roles", [["assistant"], ["user", "user"], ["user", "assistant", "assistant"]])
def test_the_request_is_refused_with_the_templates_message(tokenizer: Tokenizer, roles: list[str]) -> None:
    messages = [{"role": role, "content": "x"} for role in roles]
    with pytest.raises(RequestRejected) as caught:
        tokenizer.apply_chat_template(messages)
    assert "Conversation roles must alternate user/assistant/user/assistant/..." in caught.value.message
    assert (caught.value.code, caught.value.param) == ("chat_template_error", "messages")


def test_the_next_request_is_served(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestRejected):
        tokenizer.apply_chat_template([{"role": "assistant", "content": "x"}])
    assert tokenizer.render_chat([{"role": "user", "content": "x"}]) == "<|im_start|>user\nx<|im_end|>"
