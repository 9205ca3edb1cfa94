"""What a request for a chat and one for a completion share: how tokens are chosen, when an answer ends, what
form it has and what is told of it. The engine's extras have the names that vLLM gave them.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, Tag

from baton_contracts.openai_base import HttpModel, at_most, by_json_type
from baton_contracts.openai_formats import (
    Choices,
    Pattern,
    ResponseFormat,
    SchemaOrText,
    StructuredOutputs,
)

_INT64 = 2**63

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
_StopString = Annotated[str, Field(min_length=1, max_length=1024)]
Stop = Annotated[
    Annotated[_StopString, Tag("«string»")]
    | Annotated[list[_StopString], Field(max_length=4), Tag("«list»")],
    by_json_type("a string or a list of at most 4 strings"),
]


class StreamOptions(HttpModel):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class GenerationRequest(HttpModel):
    """Unknown fields are kept aside: the edge says which it ignored."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, frozen=True)

    model: str = Field(
        min_length=1, max_length=256, description="A served model, or an alias such as `auto`."
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=-_INT64, lt=_INT64)
    stop: Stop | None = None
    n: int | None = Field(default=None, ge=1, le=128, description="The engine has its own bound.")
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    logit_bias: Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]] | None, at_most(1024)] = Field(
        default=None, max_length=1024, description="Token id → number added to its logit."
    )
    response_format: ResponseFormat | None = None
    top_k: int | None = Field(default=None, ge=-1, lt=2**31, description="−1 or 0: off. As in vLLM.")
    min_p: float | None = Field(default=None, ge=0, le=1, description="As in vLLM.")
    min_tokens: int | None = Field(default=None, ge=0, lt=2**31, description="As in vLLM.")
    stop_token_ids: list[TokenId] | None = Field(default=None, max_length=64, description="As in vLLM.")
    ignore_eos: bool | None = Field(default=None, description="As in vLLM.")
    include_stop_str_in_output: bool | None = Field(default=None, description="As in vLLM.")
    skip_special_tokens: bool | None = Field(default=None, description="As in vLLM.")
    repetition_penalty: float | None = Field(default=None, gt=0, le=10, description="As in vLLM.")
    bad_words: list[Annotated[str, Field(min_length=1, max_length=256)]] | None = Field(
        default=None, max_length=1024, description="As in vLLM."
    )
    allowed_token_ids: list[TokenId] | None = Field(
        default=None, min_length=1, max_length=8192, description="As in vLLM."
    )
    truncate_prompt_tokens: int | None = Field(default=None, ge=-1, lt=2**31, description="As in vLLM.")
    priority: int | None = Field(
        default=None, ge=0, le=1000, description="Above 0: served after others. Waiting makes up for it."
    )
    cache_salt: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="Cached work is shared only with requests of the same key's tenant and salt.",
    )
    structured_outputs: StructuredOutputs | None = Field(default=None, description="As in vLLM.")
    guided_json: SchemaOrText | None = Field(default=None, description="Older: structured_outputs.json.")
    guided_regex: Pattern | None = Field(default=None, description="Older: structured_outputs.regex.")
    guided_choice: Choices | None = Field(default=None, description="Older: structured_outputs.choice.")
    guided_grammar: Pattern | None = Field(default=None, description="Older: structured_outputs.grammar.")
    user: str | None = Field(default=None, description="No effect.")

    best_of: int | None = Field(
        default=None,
        ge=1,
        le=128,
        description="So many are written, the n likeliest are given. Not streamed.",
    )
    echo: bool | None = Field(default=None, description="The answer begins with what it goes on from.")
    prompt_logprobs: int | None = Field(
        default=None, ge=0, le=20, description="As in vLLM; not streamed. Needs its own prefill."
    )
    return_token_ids: bool | None = Field(default=None, description="As in vLLM.")
    return_tokens_as_token_ids: bool | None = Field(
        default=None, description="Tokens of logprobs are named `token_id:17`. As in vLLM."
    )
    add_special_tokens: bool | None = Field(
        default=None,
        description="Of a completion: false leaves out the BOS. A chat's template writes its own.",
    )
    spaces_between_special_tokens: bool | None = Field(default=None, description="No effect.")
