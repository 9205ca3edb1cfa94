from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from baton_contracts import errors
from baton_edge_api.app import routes_of
from baton_edge_api.openapi import document, document_bytes

COMMITTED = Path(__file__).parents[3] / "contracts" / "openapi.json"


def test_the_committed_document_is_fresh() -> None:
    assert COMMITTED.read_bytes() == document_bytes(), (
        "contracts/openapi.json is stale: python -m baton_edge_api.openapi > contracts/openapi.json"
    )


def test_every_reference_leads_somewhere() -> None:
    made = document()
    kinds = made["components"]

    def references(node: object) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if "$ref" in node else []
            return own + [ref for value in node.values() for ref in references(value)]
        return [ref for value in node for ref in references(value)] if isinstance(node, list) else []

    found = references(made)
    assert found
    for reference in found:
        _, components, kind, name = reference.split("/")
        assert components == "components"
        assert name in kinds[kind], reference


def test_ranges_and_choices_are_published() -> None:
    request = document()["components"]["schemas"]["ChatCompletionRequest"]
    assert request["required"] == ["model", "messages"]
    temperature = request["properties"]["temperature"]["anyOf"][0]
    assert temperature == {"type": "number", "minimum": 0, "maximum": 2}


def test_operations_have_names_of_their_own_and_only_open_ones_need_no_key() -> None:
    paths = document()["paths"]
    operations = [(path, operation) for path, methods in paths.items() for operation in methods.values()]
    names = [operation["operationId"] for _, operation in operations]
    assert len(names) == len(set(names))
    for path, operation in operations:
        assert (operation.get("security") == []) == (not path.startswith("/v1/"))


class _Anything:
    """Every part of the edge, and every endpoint of it."""

    def __getattr__(self, name: str) -> Any:
        async def endpoint(request: object) -> None: ...

        return self if name in ("files", "batches") else endpoint

    async def __call__(self, *arguments: object) -> None: ...


def test_every_route_is_in_the_document() -> None:
    anything: Any = _Anything()
    routes = routes_of(*[anything] * 8)
    served = {
        (re.sub(r":path}", "}", route.path), method)
        for route in routes
        for method in (route.methods or set()) - {"HEAD"}
    }
    told = {(path, method.upper()) for path, methods in document()["paths"].items() for method in methods}
    assert served == told


def test_every_status_of_the_error_table_is_told_and_refusals_have_their_headers() -> None:
    made = document()
    told = {
        int(status)
        for methods in made["paths"].values()
        for operation in methods.values()
        for status in operation["responses"]
    }
    known = {errors.http_status(code) for code in errors.ErrorCode.__args__}
    assert told == {200} | known - {405}, "405 has no operation that it could stand at"
    headers = {name: answer["headers"] for name, answer in made["components"]["responses"].items()}
    assert {"retry-after", "retry-after-ms", "x-request-id"} <= headers["Error429"].keys()
    assert {"retry-after", "retry-after-ms", "x-baton-stop"} <= headers["Error503"].keys()
    assert (
        "x-ratelimit-remaining-tokens"
        in made["paths"]["/v1/embeddings"]["post"]["responses"]["200"]["headers"]
    )
