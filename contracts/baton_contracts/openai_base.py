"""What all HTTP models share: strictness, and marks by which an error's path leaves out a union's tags.

A body that is wrong all over costs no more than one that is wrong once: long lists are judged up to their
first wrong item (`fail_fast`), objects only if they are not too large.
"""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator
from pydantic_core import PydanticKnownError

TAG_MARK = "«"
"""Begins the tags of unions, so that an error's path can be told apart from them."""

_JSON_TYPES: dict[type, str] = {str: "string", list: "list", dict: "object", bool: "boolean"}


class HttpModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True)


def json_type_tag(value: object) -> str | None:
    """The tag of a union whose members are of different JSON types: «string», «list», «object»."""
    name = _JSON_TYPES.get(type(value)) or ("object" if isinstance(value, BaseModel) else None)
    return f"«{name}»" if name else None


def by_json_type(what: str) -> Discriminator:
    """Chooses a union's member by `json_type_tag`; `what` completes "must be …"."""
    return Discriminator(
        json_type_tag, custom_error_type="invalid_type", custom_error_message=f"must be {what}"
    )


def kind_of(value: object) -> object:
    """Its `type`, be it JSON still or a model already."""
    if isinstance(value, dict):
        return cast("dict[str, object]", value).get("type")
    return getattr(value, "type", None)


def by_kind(*kinds: str, otherwise: str) -> Discriminator:
    """Chooses a union's member by `type`. What is of none of these kinds is judged as `otherwise`, which then
    says so."""

    def tag(value: object) -> str:
        kind = kind_of(value)
        return f"{TAG_MARK}{kind if kind in kinds else otherwise}»"

    return Discriminator(tag)


def at_most(num_members: int) -> BeforeValidator:
    """Of an object. Told before its members are judged."""

    def check(value: object) -> object:
        if isinstance(value, dict):
            size = len(cast("dict[str, object]", value))
            if size > num_members:
                told = {"field_type": "Dictionary", "max_length": num_members, "actual_length": size}
                raise PydanticKnownError("too_long", told)
        return value

    return BeforeValidator(check)


JsonObject = dict[str, Any]
"""Free JSON: what it means is judged where it is used."""
