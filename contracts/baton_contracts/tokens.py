"""What a prompt is in a model's tokens, asked before an engine has the request: by a router that compares
caches, by an edge that counts before it lets in. On `tokens.MODEL.RID`; that model's ready replicas answer.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from baton_contracts.base import MAX_COUNT, WireModel
from baton_contracts.errors import ErrorBody
from baton_contracts.prompt import Prompt, Sampling


class TokensQuery(WireModel):
    model: str
    prompt: Prompt
    sampling: Sampling = Field(
        default=Sampling(), description="Only what cuts the prompt counts: truncate_prompt_tokens and bounds."
    )
    resume_token_ids: tuple[int, ...] = Field(default=(), description="As in EngineWork.")
    cache_salt: str = Field(default="", description="As in EngineWork; it begins the chain of hashes.")
    want: Literal["count", "ids", "hashes", "text"] = Field(
        default="count",
        description="Each is told with those before it: hashes with ids and count. Text: what the ids of a "
        "raw prompt spell, whatever text stands beside them; with the count.",
    )


class TokensReply(WireModel):
    """Exactly what an engine of that model would make of the prompt; or `error`, as it would refuse it."""

    num_tokens: int = Field(
        default=0, ge=0, le=MAX_COUNT, description="That it would compute and bill, after any cut."
    )
    token_ids: tuple[int, ...] = Field(
        default=(), description="Of the whole prompt, before any cut: for EngineWork.prompt_token_ids."
    )
    tokenizer: str = Field(default="", description="For EngineWork.prompt_tokenizer.")
    block_size: int = Field(default=16, ge=1, le=MAX_COUNT, description="Tokens.")
    block_hashes: tuple[str, ...] = Field(
        default=(), description="As KvEvents names them: of the blocks that a cache could spare computing."
    )
    text: str = ""
    error: ErrorBody | None = None
