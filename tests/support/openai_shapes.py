"""Objects judged by the types that the `openai` package publishes, strictly; and the fields that are ours.

Owns the one list of what stands in our objects beside OpenAI's fields, each with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from openai.types import Completion
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

OWN_FIELDS: dict[str, str] = {
    "ChatCompletionMessage.reasoning": "what the model thought; vLLM's name since 0.12",
    "ChatCompletionMessage.reasoning_content": "the same, as DeepSeek and older vLLM clients read it",
    "ChatCompletionMessage.baton": "the sources of an answer; only there when documents were used",
    "ChoiceDelta.reasoning": "as in ChatCompletionMessage",
    "ChoiceDelta.reasoning_content": "as in ChatCompletionMessage",
    "ChatCompletion.prompt_token_ids": "asked for with return_token_ids, as vLLM has it",
    "ChatCompletion.prompt_logprobs": "asked for with prompt_logprobs, as vLLM has it",
    "ChatCompletionChunk.prompt_token_ids": "asked for with return_token_ids",
    "ChatCompletionChunk.baton": "as in ChatCompletionMessage",
    "Choice.token_ids": "asked for with return_token_ids",
    "CompletionChoice.token_ids": "asked for with return_token_ids",
    "CompletionChoice.prompt_token_ids": "asked for with return_token_ids",
    "CompletionChoice.prompt_logprobs": "asked for with prompt_logprobs",
    "Model.max_model_len": "the context length, by the name that vLLM's clients read",
    "Model.task": "`embed`: this one makes vectors",
    "Response.store": "OpenAI's own: echoed, but not in its package",
    "Response.baton": "the sources of an answer",
    "ResponseFunctionCallArgumentsDoneEvent.name": "OpenAI's own: in its specification, not in its package",
    "FileObject.status_details": "OpenAI's own, but not in its package",
}


def judged(published: Any, value: object) -> Any:
    """The object as `published`; raises if it is none, or if it has a field that nobody knows."""
    made = TypeAdapter(published).validate_python(value, strict=True)
    strangers = {name for name in extra_fields(made) if name not in OWN_FIELDS}
    assert not strangers, f"neither OpenAI's nor in OWN_FIELDS: {sorted(strangers)}"
    return made


def extra_fields(value: object) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from (f"{type(value).__name__}.{name}" for name in value.model_extra or {})
        for name in type(value).model_fields:
            yield from extra_fields(getattr(value, name))
    elif isinstance(value, list):
        for item in value:
            yield from extra_fields(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from extra_fields(item)


def events_of(body: str) -> list[dict[str, Any]]:
    """The data of a whole stream that ended well, without `[DONE]`."""
    data = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: ")]
    if data[-1] == "[DONE]":
        data.pop()
    return [json.loads(each) for each in data]


def completion_chunk(event: dict[str, Any]) -> Any:
    """The package has one type for whole completions and for chunks, in which no finish reason may be null;
    in OpenAI's own streams it is null until the last chunk of a choice, and so it is here."""
    for choice in event["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"
    return judged(Completion, event)


RESPONSE_EVENT: Any = ResponseStreamEvent
