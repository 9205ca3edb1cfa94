from __future__ import annotations

from pathlib import Path

from baton_edge_api.openapi import document, document_bytes

COMMITTED = Path(__file__).parents[3] / "contracts" / "openapi.json"


def test_the_committed_document_is_fresh() -> None:
    assert COMMITTED.read_bytes() == document_bytes(), (
        "contracts/openapi.json is stale: python -m baton_edge_api.openapi > contracts/openapi.json"
    )


def test_every_reference_leads_somewhere() -> None:
    made = document()
    schemas = made["components"]["schemas"]

    def references(node: object) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if "$ref" in node else []
            return own + [ref for value in node.values() for ref in references(value)]
        return [ref for value in node for ref in references(value)] if isinstance(node, list) else []

    found = references(made)
    assert found
    assert {ref.removeprefix("#/components/schemas/") for ref in found} <= schemas.keys()


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
