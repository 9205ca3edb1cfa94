"""Parameters that are known but not served, and those that are accepted without effect.

Owns the tables. A parameter that would change the answer is refused unless its value asks for nothing; one
that only concerns storage, billing or hints is named in a warning header.
"""

from __future__ import annotations

from collections.abc import Callable

Neutral = Callable[[object], bool]


def _nothing(value: object) -> bool:
    return value is None or value is False or value in ("", [], {})


def _one(value: object) -> bool:
    return value is None or value == 1


def _unless_false(value: object) -> bool:
    return value is None or value is True


NOT_SERVED: dict[str, Neutral] = {
    "functions": _nothing,
    "function_call": lambda value: value in (None, "none", "auto"),
    "modalities": lambda value: value in (None, ["text"]),
    "audio": _nothing,
    "prediction": _nothing,
    "web_search_options": lambda value: value is None,
    # What vLLM has besides.
    "best_of": _one,
    "prompt_logprobs": lambda value: value is None,
    "length_penalty": _one,
    "use_beam_search": _nothing,
    "early_stopping": _nothing,
    "logits_processors": _nothing,
    "spaces_between_special_tokens": _unless_false,
    "echo": _nothing,
    "add_generation_prompt": _unless_false,
    "continue_final_message": _nothing,
    "add_special_tokens": _nothing,
    "documents": _nothing,
    "chat_template": _nothing,
    "mm_processor_kwargs": _nothing,
    "guided_whitespace_pattern": _nothing,
    "structural_tag": _nothing,
    "include_reasoning": _unless_false,
    "return_token_ids": _nothing,
    "return_tokens_as_token_ids": _nothing,
    "kv_transfer_params": _nothing,
    "vllm_xargs": _nothing,
}
"""Name → whether a value asks for nothing. Any other value is refused."""

INSTEAD: dict[str, str] = {
    "functions": "this older form is not served; use tools.",
    "function_call": "this older form is not served; use tool_choice.",
    "chat_template": "templates of requests are not run; the model's own is used.",
}

NO_EFFECT = frozenset(
    {
        "store",
        "metadata",
        "user",
        "safety_identifier",
        "service_tier",
        "reasoning_effort",
        "verbosity",
        "prompt_cache_key",
        "guided_decoding_backend",
    }
)
"""Parameters that are known and change nothing here."""
