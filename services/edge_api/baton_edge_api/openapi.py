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
from baton_edge_api.openapi_parts import REF
from baton_edge_api.openapi_parts import answer as _answer
from baton_edge_api.openapi_parts import any_json as _any_json
from baton_edge_api.openapi_parts import body as _body
from baton_edge_api.openapi_parts import content as _content
from baton_edge_api.openapi_parts import operation as _operation
from baton_edge_api.openapi_parts import parameter as _parameter
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
    openai_answers.ModelCard,
    openai_answers.ModelList,
    openai_requests.DocumentRequest,
    openai_answers.DocumentAnswer,
)


def _chat() -> dict[str, Any]:
    return _generation("createChatCompletion", "Answer a chat", "ChatCompletion")


def _completion() -> dict[str, Any]:
    return _generation("createCompletion", "Go on from a prompt, without a chat template", "Completion")


def _generation(name: str, summary: str, answer: str) -> dict[str, Any]:
    content = _content(answer) | _content(f"{answer}Chunk", "text/event-stream")
    return _operation(
        name,
        f"{summary}, whole or as server-sent events.",
        _answer("The answer; with `stream`, one event a chunk, then `[DONE]`.", content),
        key=True,
        requestBody=_body(f"{answer}Request"),
        parameters=[
            _parameter("x-request-id", "header", "Your own id: 32 hex digits or a UUID."),
            _parameter(
                "cache-control",
                "header",
                "Of the response cache. `no-store`: neither read nor kept; `no-cache`: not read, but kept; "
                "`max-age=N`: read if younger than N seconds.",
            ),
            _parameter("x-baton-cache-ttl", "header", "Keep this answer for so many seconds."),
        ],
    )


def _embeddings() -> dict[str, Any]:
    return _operation(
        "createEmbeddings",
        "Vectors of texts or of token ids.",
        _answer("One unit vector an input, in order.", _content("EmbeddingList")),
        key=True,
        requestBody=_body("EmbeddingRequest"),
    )


def _v1_paths() -> dict[str, Any]:
    model = _parameter("name", "path", "A served model or an alias.")
    trace = _parameter("request_id", "path", "As in x-request-id.")
    limit = _parameter("limit", "query", "How many, 1 to 100; 20 if left out.")
    conversation = _parameter("conversation_id", "path", "As in x-conversation-id.")
    request = _parameter("request_id", "query", "As in x-request-id.")
    source = _parameter("source", "query", "The document's name.")
    document = _operation(
        "addDocument",
        "Add a document to what answers may draw on, or replace it.",
        _answer("What changed.", _content("DocumentAnswer")),
        key=True,
        requestBody=_body("DocumentRequest"),
    )
    removal = _operation(
        "removeDocument", "Take a document out.", _any_json("Done."), key=True, parameters=[source]
    )
    return {
        "/v1/chat/completions": {"post": _chat()},
        "/v1/completions": {"post": _completion()},
        "/v1/embeddings": {"post": _embeddings()},
        "/v1/models": {
            "get": _operation(
                "listModels", "Models served now.", _answer("All.", _content("ModelList")), key=True
            )
        },
        "/v1/models/{name}": {
            "get": _operation(
                "getModel", "One model.", _answer("It.", _content("ModelCard")), key=True, parameters=[model]
            )
        },
        "/v1/traces": {
            "get": _operation(
                "listTraces",
                "The newest traces.",
                _any_json("Their summaries."),
                key=True,
                parameters=[limit],
            )
        },
        "/v1/traces/{request_id}": {
            "get": _operation(
                "getTrace", "A request's way.", _any_json("Its spans."), key=True, parameters=[trace]
            )
        },
        "/v1/conversations/{conversation_id}": {
            "get": _operation(
                "getConversation",
                "A stored conversation.",
                _any_json("Its turns."),
                key=True,
                parameters=[conversation],
            )
        },
        "/v1/usage": {
            "get": _operation(
                "getUsage",
                "Ledger rows of a request, or with `by` sums over a time.",
                _any_json("The rows, or the sums."),
                key=True,
                parameters=[
                    request,
                    _parameter("by", "query", "What sums tell apart: key, team, model, day, with commas."),
                    _parameter("since", "query", "A day (UTC), an ISO 8601 time or Unix seconds."),
                    _parameter("until", "query", "Before this time; now, if left out."),
                ],
            )
        },
        "/v1/documents": {"post": document, "delete": removal},
    }


def _open_paths() -> dict[str, Any]:
    text = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "/healthz": {"get": _operation("healthz", "Is the process alive?", _any_json("It is."), key=False)},
        "/readyz": {
            "get": _operation(
                "readyz", "Would a question be answered now?", _any_json("It would."), key=False
            )
        },
        "/metrics": {
            "get": _operation("metrics", "Prometheus metrics.", _answer("Metrics.", text), key=False)
        },
    }


def document() -> dict[str, Any]:
    _, definitions = models_json_schema(
        [(model, "validation") for model in _MODELS], ref_template=REF + "{model}"
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Baton", "version": CONTRACT_VERSION, "license": {"name": "Apache-2.0"}},
        "security": [{"bearer": []}],
        "paths": _v1_paths() | response_paths() | batch_paths() | _open_paths(),
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": definitions["$defs"],
        },
    }


def document_bytes() -> bytes:
    return (json.dumps(document(), indent=2, ensure_ascii=False) + "\n").encode()


if __name__ == "__main__":
    sys.stdout.buffer.write(document_bytes())
