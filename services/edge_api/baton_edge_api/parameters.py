"""Parameters that are known but not served, and those that are accepted without effect.

Owns the tables. A parameter that would change the answer is refused unless its value asks for nothing; one
that only concerns storage, billing or hints is named in a warning header.
"""

from __future__ import annotations

from collections.abc import Callable

Neutral = Callable[[object], bool]


def _nothing(value: object) -> bool:
    return value is None or value is False or value in ("", [], {})


def _zero(value: object) -> bool:
    return value is None or value == 0


def _one(value: object) -> bool:
    return value is None or value == 1


NOT_SERVED: dict[str, Neutral] = {
    "tools": _nothing,
    "tool_choice": lambda value: value in (None, "none"),
    "functions": _nothing,
    "function_call": lambda value: value in (None, "none"),
    "n": _one,
    "best_of": _one,
    "logprobs": _nothing,
    "top_logprobs": _zero,
    "prompt_logprobs": _zero,
    "logit_bias": _nothing,
    "frequency_penalty": _zero,
    "presence_penalty": _zero,
    "repetition_penalty": _one,
    "length_penalty": _one,
    "use_beam_search": _nothing,
    "response_format": lambda value: value is None or getattr(value, "type", "") == "text",
    "modalities": lambda value: value in (None, ["text"]),
    "audio": _nothing,
    "prediction": _nothing,
    "web_search_options": lambda value: value is None,
    "guided_json": _nothing,
    "guided_regex": _nothing,
    "guided_choice": _nothing,
    "guided_grammar": _nothing,
    "structured_outputs": _nothing,
    "echo": _nothing,
    "chat_template": _nothing,
    "chat_template_kwargs": _nothing,
    "continue_final_message": _nothing,
    "truncate_prompt_tokens": lambda value: value is None,
}
"""Name → whether a value asks for nothing. Any other value is refused."""

NO_EFFECT = frozenset(
    {
        "store",
        "metadata",
        "user",
        "safety_identifier",
        "service_tier",
        "parallel_tool_calls",
        "reasoning_effort",
        "verbosity",
        "prompt_cache_key",
    }
)
"""OpenAI's own parameters that change nothing here."""
