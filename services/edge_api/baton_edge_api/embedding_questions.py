"""From the JSON of an embeddings request to questions for the embedder.

Owns what is refused, and how many inputs go into one question. Knows nothing of HTTP or NATS.
"""

from __future__ import annotations

from collections.abc import Iterator

from baton_contracts.heartbeats import EmbeddingModel
from baton_contracts.openai_embeddings import EmbeddingRequest
from baton_contracts.queries import MAX_TEXTS, EmbedQuery
from baton_edge_api.refusals import check_num_characters
from baton_edge_api.typed_body import parsed, typed
from baton_edge_api.validation import ignored_names

_QUESTION_TOKENS = 4096
"""About so many go into one question: an embedder of one thread answers it well within its time."""
_REPLY_BYTES = 4 * 1024 * 1024
_BYTES_A_NUMBER = 11


def read_embeddings(
    body: bytes, *, strict: bool, max_text_chars: int
) -> tuple[EmbeddingRequest, tuple[str, ...]]:
    """The request, and the names in it that have no effect. Raises RequestFailed, naming the parameter."""
    wire = typed(EmbeddingRequest, parsed(body))
    total = sum(len(item) for item in wire.input if isinstance(item, str))
    check_num_characters(total, max_text_chars, "input")
    return wire, ignored_names(wire, strict=strict)


def questions(wire: EmbeddingRequest, model: EmbeddingModel) -> Iterator[EmbedQuery]:
    """As few as fit: each bounded in inputs, in tokens (guessed high) and in the size of its answer."""
    whole = wire.truncate_prompt_tokens is None
    most = max(1, min(MAX_TEXTS, _REPLY_BYTES // (_BYTES_A_NUMBER * model.dimensions)))
    part: list[str | list[int]] = []
    first = tokens = 0
    for item in wire.input:
        cost = min(model.max_tokens, len(item) if isinstance(item, list) else len(item) // 3 + 2)
        if part and (len(part) == most or tokens + cost > _QUESTION_TOKENS):
            yield _question(part, first, whole=whole)
            first += len(part)
            part, tokens = [], 0
        part.append(item)
        tokens += cost
    yield _question(part, first, whole=whole)


def _question(part: list[str | list[int]], first: int, *, whole: bool) -> EmbedQuery:
    texts = tuple(item for item in part if isinstance(item, str))
    token_ids = tuple(tuple(ids) for ids in part if isinstance(ids, list))
    return EmbedQuery(texts=texts, token_ids=token_ids, whole=whole, first=first)
