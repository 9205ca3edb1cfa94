"""The OpenAPI 3.1 document of the edge, made from the HTTP models: `python -m baton_edge_api.openapi`.

Owns what each path takes and gives, for people and generators. The models themselves are contracts'.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic.json_schema import models_json_schema

from baton_contracts import (
    CONTRACT_VERSION,
    openai_answers,
    openai_completions,
    openai_embeddings,
    openai_requests,
)
from baton_edge_api.batches.openapi_paths import BATCH_MODELS, batch_paths
from baton_edge_api.cache_control import MAX_SECONDS
from baton_edge_api.openapi_links import link
from baton_edge_api.openapi_parts import (
    LIMITED,
    REF,
    body,
    content,
    error_answers,
    limited_answer,
    operation,
    parameter,
    request_id,
)
from baton_edge_api.openapi_side import SIDE_MODELS, open_paths, side_paths
from baton_edge_api.responses.openapi_paths import RESPONSE_MODELS, response_paths

_MODELS = (
    openai_requests.ChatCompletionRequest,
    openai_answers.ChatCompletion,
    openai_answers.ChatCompletionChunk,
    openai_completions.CompletionRequest,
    openai_completions.Completion,
    openai_completions.CompletionChunk,
    openai_embeddings.EmbeddingRequest,
    openai_embeddings.EmbeddingList,
    *BATCH_MODELS,
    *RESPONSE_MODELS,
    openai_answers.ErrorAnswer,
    *SIDE_MODELS,
)


def _chat() -> dict[str, Any]:
    return _generation("createChatCompletion", "Answer a chat", "ChatCompletion")


def _completion() -> dict[str, Any]:
    return _generation("createCompletion", "Go on from a prompt, without a chat template", "Completion")


def _generation(name: str, summary: str, answer: str) -> dict[str, Any]:
    told = content(answer) | content(f"{answer}Chunk", "text/event-stream")
    return operation(
        name,
        f"{summary}, whole or as server-sent events.",
        limited_answer("The answer; with `stream`, one event a chunk, then `[DONE]`.", told),
        key=True,
        failures=LIMITED,
        requestBody=body(f"{answer}Request"),
        parameters=[
            request_id("x-request-id", "header", "Your own id: 32 hex digits or a UUID."),
            parameter(
                "cache-control",
                "header",
                "Of the response cache. `no-store`: neither read nor kept; `no-cache`: not read, but kept; "
                "`max-age=N`: read if younger than N seconds.",
            ),
            parameter(
                "x-baton-cache-ttl",
                "header",
                "Keep this answer for so many seconds.",
                type="integer",
                minimum=1,
                maximum=int(MAX_SECONDS),
            ),
        ],
    )


def _embeddings() -> dict[str, Any]:
    return operation(
        "createEmbeddings",
        "Vectors of texts or of token ids.",
        limited_answer("One unit vector an input, in order.", content("EmbeddingList")),
        key=True,
        failures=LIMITED,
        requestBody=body("EmbeddingRequest"),
    )


def _relay_paths() -> dict[str, Any]:
    return {
        "/v1/chat/completions": {"post": _chat()},
        "/v1/completions": {"post": _completion()},
        "/v1/embeddings": {"post": _embeddings()},
    }


def document() -> dict[str, Any]:
    _, definitions = models_json_schema(
        [(model, "validation") for model in _MODELS], ref_template=REF + "{model}"
    )
    paths = _relay_paths() | response_paths() | batch_paths() | side_paths() | open_paths()
    link(paths)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Baton", "version": CONTRACT_VERSION, "license": {"name": "Apache-2.0"}},
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "responses": error_answers(),
            "schemas": definitions["$defs"],
        },
    }


def document_bytes() -> bytes:
    return (json.dumps(document(), indent=2, ensure_ascii=False) + "\n").encode()


if __name__ == "__main__":
    sys.stdout.buffer.write(document_bytes())
