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


NOT_SERVED: dict[str, Neutral] = {
    "modalities": lambda value: value in (None, ["text"]),
    "audio": _nothing,
    "web_search_options": lambda value: value is None,
    # What vLLM has besides.
    "length_penalty": _one,
    "use_beam_search": _nothing,
    "early_stopping": _nothing,
    "logits_processors": _nothing,
    "documents": _nothing,
    "chat_template": _nothing,
    "mm_processor_kwargs": _nothing,
    "guided_whitespace_pattern": _nothing,
    "structural_tag": _nothing,
    "kv_transfer_params": _nothing,
    "vllm_xargs": _nothing,
}
"""Name → whether a value asks for nothing. Any other value is refused."""

CHAT_NOT_SERVED: dict[str, Neutral] = NOT_SERVED | {"add_special_tokens": _nothing}
COMPLETION_NOT_SERVED: dict[str, Neutral] = NOT_SERVED | {"suffix": _nothing}

INSTEAD: dict[str, str] = {
    "add_special_tokens": "a chat's template writes its own.",
    "suffix": "filling in between a prompt and a suffix is not served.",
    "chat_template": "templates of requests are not run; the model's own is used.",
}

NO_EFFECT = frozenset(
    {
        "store",
        "metadata",
        "user",
        "safety_identifier",
        "service_tier",
        "verbosity",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "prediction",
        "guided_decoding_backend",
        "spaces_between_special_tokens",
    }
)
"""Parameters that are known and change nothing here."""
