"""From the JSON of a completion request to the relay's requests, one a prompt, or to what is wrong with it.

Owns what a completion's parameters mean where they differ from a chat's. Knows nothing of HTTP or NATS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from baton_contracts.openai_completions import CompletionRequest
from baton_contracts.prompt import ChatRequest, Message, Part
from baton_edge_api.completion_objects import CompletionForm
from baton_edge_api.completion_question import CompletionQuestion
from baton_edge_api.generation_mapping import check_generation, sampling_of
from baton_edge_api.parameters import COMPLETION_NOT_SERVED
from baton_edge_api.refusals import bad_value, check_num_characters
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.typed_body import typed
from baton_edge_api.validation import check_served, ignored_names

DEFAULT_MAX_TOKENS = 16
"""As the OpenAI specification says."""
MAX_CHOICES = 128


def completion_reader(settings: EdgeSettings) -> Callable[[object], CompletionQuestion]:
    strict, limit = settings.strict, settings.max_text_chars
    return lambda raw: read_completion(raw, strict=strict, max_text_chars=limit)


def read_completion(raw: object, *, strict: bool, max_text_chars: int) -> CompletionQuestion:
    """Raises RequestFailed, naming the parameter."""
    wire = typed(CompletionRequest, raw)
    check_served(wire, COMPLETION_NOT_SERVED)
    max_tokens = DEFAULT_MAX_TOKENS if wire.max_tokens is None else wire.max_tokens
    check_generation(wire, max_tokens)
    chats = _chats(wire, max_tokens)
    check_num_characters(sum(chat.num_characters for chat in chats), max_text_chars, "prompt")
    return CompletionQuestion(
        chat=chats[0],
        more_chats=chats[1:],
        conversation_id=None,
        ignored=ignored_names(wire, strict=strict),
        form=_form(wire, chats, max_tokens),
        include_usage=bool(wire.stream_options and wire.stream_options.include_usage),
    )


def _chats(wire: CompletionRequest, max_tokens: int) -> tuple[ChatRequest, ...]:
    sampling = sampling_of(wire, max_tokens=max(1, max_tokens), logprobs=wire.logprobs)
    if wire.echo and wire.logprobs is not None:
        wanted = max(wire.logprobs, sampling.prompt_logprobs or 0)
        sampling = sampling.model_copy(update={"prompt_logprobs": wanted})
    chats = tuple(
        ChatRequest(
            model=wire.model,
            messages=(Message(role="user", parts=(Part(text=text),)),),
            rendering="raw",
            token_ids=token_ids,
            add_special_tokens=wire.add_special_tokens is not False,
            sampling=sampling,
            priority=wire.priority or 0,
            cache_salt=wire.cache_salt or "",
            stream=bool(wire.stream),
            retrieval="off",
        )
        for text, token_ids in _prompts(wire.prompt)
    )
    if len(chats) * sampling.n > MAX_CHOICES:
        text = f"{len(chats)} prompts with {sampling.n} answers each are more than {MAX_CHOICES} choices."
        raise bad_value("prompt" if len(chats) > 1 else "n", text)
    return chats


def _prompts(given: object) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Text and token ids of each: one of the two."""
    if isinstance(given, str):
        yield given, ()
        return
    items = cast(list[Any], given)
    if isinstance(items[0], int):
        yield "", tuple(items)
        return
    for item in items:
        yield (item, ()) if isinstance(item, str) else ("", tuple(item))


def _form(wire: CompletionRequest, chats: tuple[ChatRequest, ...], max_tokens: int) -> CompletionForm:
    return CompletionForm(
        prompts=tuple(chat.messages[0].text for chat in chats),
        num_answers=wire.n or 1,
        num_written=chats[0].sampling.n,
        logprobs=wire.logprobs,
        tokens_as_ids=bool(wire.return_tokens_as_token_ids),
        token_ids=bool(wire.return_token_ids),
        prompt_logprobs=wire.prompt_logprobs is not None,
        echo=bool(wire.echo),
        only_prompt=max_tokens == 0,
    )
