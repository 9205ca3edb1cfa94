"""The HTTP form of embeddings: OpenAI's, with its bounds."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from baton_contracts.openai_base import HttpModel

MAX_INPUTS = 2048
MAX_TOKENS = 300_000
"""Token ids of one request together."""

_TOKEN = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string", "minLength": 1}
_SCHEMA: dict[str, Any] = {
    "description": "A text, several, or the same as token ids of the embedding model.",
    "anyOf": [
        _TEXT,
        {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MAX_INPUTS},
        {"type": "array", "items": _TOKEN, "minItems": 1},
        {
            "type": "array",
            "items": {"type": "array", "items": _TOKEN, "minItems": 1},
            "minItems": 1,
            "maxItems": MAX_INPUTS,
        },
    ],
}


def _judged(value: object) -> list[str] | list[list[int]]:
    """One form for all: a list of texts, or a list of lists of ids."""
    if isinstance(value, str):
        return _texts([value])
    if not isinstance(value, list):
        raise PydanticCustomError("invalid_type", "must be a text, a list of texts, or token ids")
    items = cast("list[object]", value)
    if not items:
        raise PydanticCustomError("invalid_value", "must not be empty")
    if all(_is_token(item) for item in items):
        return _token_lists([items])
    if all(isinstance(item, str) for item in items):
        return _texts(cast("list[str]", items))
    if all(isinstance(item, list) for item in items):
        return _token_lists(cast("list[list[object]]", items))
    raise PydanticCustomError("invalid_type", "must hold only texts, only token ids, or only lists of those")


def _texts(texts: list[str]) -> list[str]:
    _count(texts)
    if "" in texts:
        place = texts.index("")
        raise PydanticCustomError(
            "invalid_value", "must not hold an empty text (at {place})", {"place": place}
        )
    return texts


def _token_lists(lists: list[list[object]]) -> list[list[int]]:
    _count(lists)
    for place, ids in enumerate(lists):
        if not ids or not all(_is_token(item) for item in ids):
            text = "must hold token ids, 0 or more, and no empty list (at {place})"
            raise PydanticCustomError("invalid_value", text, {"place": place})
    if sum(map(len, lists)) > MAX_TOKENS:
        raise PydanticCustomError(
            "invalid_value", "must not hold more than {most} tokens", {"most": MAX_TOKENS}
        )
    return cast("list[list[int]]", lists)


def _count(inputs: list[Any]) -> None:
    if len(inputs) > MAX_INPUTS:
        raise PydanticCustomError(
            "invalid_value", "must not hold more than {most} inputs", {"most": MAX_INPUTS}
        )


def _is_token(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


class EmbeddingRequest(HttpModel):
    model_config = ConfigDict(extra="allow")

    model: str = Field(min_length=1, max_length=128)
    input: Annotated[Any, BeforeValidator(_judged), WithJsonSchema(_SCHEMA)]
    encoding_format: Literal["float", "base64"] | None = Field(
        default=None, description="base64: of little-endian 32-bit floats. Default: float."
    )
    dimensions: int | None = Field(
        default=None, ge=1, description="Only the first so many, scaled to length 1 again."
    )
    truncate_prompt_tokens: int | None = Field(
        default=None,
        ge=-1,
        lt=2**31,
        description="-1, or all that the model reads: of a longer text its beginning counts, as in vLLM. "
        "Default: it is refused.",
    )
    user: str | None = Field(default=None, max_length=512)


class Embedding(HttpModel):
    object: Literal["embedding"]
    index: int = Field(ge=0)
    embedding: list[float] | str = Field(description="A unit vector.")


class EmbeddingUsage(HttpModel):
    prompt_tokens: int = Field(ge=0)
    total_tokens: int = Field(ge=0)


class EmbeddingList(HttpModel):
    object: Literal["list"]
    data: list[Embedding]
    model: str = Field(description="The model that answered.")
    usage: EmbeddingUsage
