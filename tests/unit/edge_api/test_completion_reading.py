"""What a completion request asks of the relay, or the one thing that is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from baton_common.errors import RequestFailed
from baton_edge_api.completion_question import CompletionQuestion
from baton_edge_api.completion_reading import read_completion


def read(strict: bool = False, **fields: Any) -> CompletionQuestion:
    return read_completion({"model": "m", "prompt": "Say"} | fields, strict=strict, max_text_chars=1000)


def texts(question: CompletionQuestion) -> list[str]:
    return [chat.messages[0].text for chat in question.chats]


def test_a_raw_prompt_with_the_specifications_default_length() -> None:
    question = read()
    chat = question.chat
    assert (chat.rendering, chat.retrieval, chat.messages[0].text) == ("raw", "off", "Say")
    assert (chat.sampling.max_tokens, chat.sampling.n, chat.sampling.logprobs) == (16, 1, None)
    assert chat.sampling.prompt_logprobs is None
    assert chat.add_special_tokens
    assert not chat.sampling.return_token_ids
    assert question.more_requests == ()


def test_four_kinds_of_prompt() -> None:
    assert texts(read(prompt="")) == [""]
    assert texts(read(prompt=["a", "b"])) == ["a", "b"]
    ids = read(prompt=[5, 6])
    assert [chat.token_ids for chat in ids.chats] == [(5, 6)]
    several = read(prompt=[[5], [6, 7]])
    assert [chat.token_ids for chat in several.chats] == [(5,), (6, 7)]
    assert several.num_answers == 2


def test_echo_with_logprobs_needs_those_of_the_prompt() -> None:
    assert read(echo=True).chat.sampling.prompt_logprobs is None
    assert read(echo=True, logprobs=2).chat.sampling.prompt_logprobs == 2
    assert read(echo=True, logprobs=0).chat.sampling.prompt_logprobs == 0
    assert read(logprobs=3).chat.sampling.logprobs == 3


def test_best_of_writes_more_than_it_gives_and_rates_them() -> None:
    question = read(best_of=5, n=2, prompt=["a", "b"])
    assert (question.chat.sampling.n, question.chat.sampling.logprobs) == (5, 0)
    assert (question.num_answers, question.form.num_answers) == (10, 2)


def test_no_tokens_at_all_means_the_prompt_alone() -> None:
    question = read(max_tokens=0, echo=True)
    assert (question.chat.sampling.max_tokens, question.form.only_prompt) == (1, True)


def test_with_chat_holds_for_all_prompts() -> None:
    question = read(prompt=["a", "b"]).with_chat(use_cache=False)
    assert [chat.use_cache for chat in question.chats] == [False, False]


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"prompt": None}, "invalid_type", "prompt"),
    ({"prompt": []}, "invalid_type", "prompt"),
    ({"prompt": [[]]}, "invalid_value", "prompt[0]"),
    ({"prompt": ["a", 5]}, "invalid_type", "prompt[1]"),
    ({"prompt": [5, "a"]}, "invalid_type", "prompt[1]"),
    ({"prompt": [True]}, "invalid_type", "prompt"),
    ({"prompt": [-1]}, "invalid_value", "prompt[0]"),
    ({"prompt": {"text": "a"}}, "invalid_type", "prompt"),
    ({"prompt": ["a"] * 129}, "invalid_value", "prompt"),
    ({"prompt": ["a"] * 65, "n": 2}, "invalid_value", "prompt"),
    ({"prompt": "a" * 1001}, "request_too_large", "prompt"),
    ({"max_tokens": -1}, "invalid_value", "max_tokens"),
    ({"max_tokens": "16"}, "invalid_type", "max_tokens"),
    ({"logprobs": True}, "invalid_type", "logprobs"),
    ({"logprobs": 21}, "invalid_value", "logprobs"),
    ({"n": 0}, "invalid_value", "n"),
    ({"best_of": 0}, "invalid_value", "best_of"),
    ({"best_of": 1, "n": 2}, "invalid_value", "best_of"),
    ({"best_of": 2, "stream": True}, "invalid_value", "best_of"),
    ({"suffix": "end"}, "unsupported_parameter", "suffix"),
    ({"stop": list("abcde")}, "invalid_value", "stop"),
    ({"stream_options": {}}, "invalid_value", "stream_options"),
    ({"prompt_logprobs": 1, "stream": True}, "invalid_value", "prompt_logprobs"),
    ({"min_tokens": 17}, "invalid_value", "min_tokens"),
    ({"use_beam_search": True}, "unsupported_parameter", "use_beam_search"),
    ({"temperature": 3}, "invalid_value", "temperature"),
    ({"logit_bias": {"x": 1}}, "invalid_value", "logit_bias"),
]


@pytest.mark.parametrize(("changes", "code", "param"), WRONG, ids=lambda value: str(value)[:40])
def test_wrong_requests_name_their_parameter(changes: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(RequestFailed) as caught:
        read(**changes)
    assert (caught.value.error.code, caught.value.error.param) == (code, param)


def test_a_missing_prompt_and_a_body_that_is_none() -> None:
    for body, param in (({"model": "m"}, "prompt"), ([], None)):
        with pytest.raises(RequestFailed) as caught:
            read_completion(body, strict=False, max_text_chars=10)
        assert caught.value.error.param == param


def test_unknown_names_are_told_or_refused() -> None:
    assert read(messages=[], user="me", suffix=None).ignored == ("messages", "user")
    with pytest.raises(RequestFailed):
        read(strict=True, messages=[])


def test_the_relays_errors_name_what_the_client_knows() -> None:
    error = RequestFailed.because("content_filter", "no", param="messages").error
    assert read().in_own_words(error).param == "prompt"
