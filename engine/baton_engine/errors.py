"""Every error the engine raises on purpose. Owns their fields and codes; knows nothing of HTTP.

EngineError
├── ConfigError            a value in EngineConfig that can't be used: the start stops with a sentence
├── ModelLoadError         the model folder or file is missing, damaged or of a kind we can't run
├── EngineUnavailable      the engine has failed, is closed, or has not started yet
└── RequestRejected        this one request can't be served; carries (code, param, message)
    ├── InvalidParameter       a value out of range, an id outside the vocabulary, an empty prompt
    ├── ContextLengthExceeded  prompt + max_tokens is over the context; carries both numbers
    ├── KVCapacityExceeded     the whole KV pool could never hold it
    ├── QueueFull              the waiting room is full, in requests or in tokens: come back later
    └── DuplicateRequest       a request of this id is already held
"""

from __future__ import annotations


class EngineError(Exception):
    """Root of the tree: catch it to catch all that the engine raises on purpose."""


class ConfigError(EngineError):
    """An EngineConfig value that can't be used."""


class ModelLoadError(EngineError):
    """The model can't be loaded; the message says which file or key and what to do."""


class EngineUnavailable(EngineError):
    """The engine is not in the state `ready`."""

    def __init__(self, state: str, message: str) -> None:
        super().__init__(message)
        self.state = state


class RequestRejected(EngineError):
    """One request can't be served. `code` is stable, `param` names the field, `message` is for people."""

    def __init__(self, code: str, param: str | None, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.param = param
        self.message = message


class InvalidParameter(RequestRejected):
    """A parameter that no engine state could make valid."""

    def __init__(self, param: str, message: str, code: str = "invalid_parameter") -> None:
        super().__init__(code, param, message)


class ContextLengthExceeded(RequestRejected):
    """prompt_tokens + max_tokens > context_length.

    Clients know it by its words, not by its code: "maximum context length is" (LiteLLM, pydantic-ai), "prompt
    is too long" (LangChain). What they then do, shorten the history or take another model, hangs on them.
    """

    def __init__(self, prompt_tokens: int, max_tokens: int, context_length: int) -> None:
        mend = (
            "The prompt is too long."
            if prompt_tokens >= context_length
            else "Beside that answer the prompt is too long: shorten it, or lower max_tokens."
        )
        super().__init__(
            "context_length_exceeded",
            "messages",
            f"This model's maximum context length is {context_length} tokens, but the request needs "
            f"{prompt_tokens + max_tokens} ({prompt_tokens} in the prompt, {max_tokens} for the answer). "
            + mend,
        )
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.context_length = context_length


class KVCapacityExceeded(RequestRejected):
    """The request would need more KV blocks than the pool has in all."""

    def __init__(self, needed_blocks: int, total_blocks: int) -> None:
        super().__init__(
            "kv_capacity_exceeded",
            "max_tokens",
            f"The request needs {needed_blocks} KV blocks, but the engine has {total_blocks} in all. "
            "Shorten it, or start the engine with more KV memory.",
        )
        self.needed_blocks = needed_blocks
        self.total_blocks = total_blocks


class QueueFull(RequestRejected):
    """The waiting room is full; `waiting` and `limit` are in the unit that `unit` names."""

    def __init__(self, waiting: int, limit: int, unit: str) -> None:
        super().__init__(
            "queue_full",
            None,
            f"{waiting} {unit} are waiting already (the limit is {limit}). Try again later.",
        )
        self.waiting = waiting
        self.limit = limit
        self.unit = unit


class DuplicateRequest(RequestRejected):
    """A request of this id is held already."""

    def __init__(self, request_id: str) -> None:
        super().__init__(
            "duplicate_request", "request_id", f"A request with the id {request_id!r} is already held."
        )
        self.request_id = request_id
