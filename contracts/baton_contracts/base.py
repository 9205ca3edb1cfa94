"""The base model of every message: frozen, unknown fields ignored (a newer minor may add some)."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

MAX_COUNT = 2**53 - 1
"""The largest number that every reader of JSON keeps exactly; more of anything was never counted."""


class MalformedMessage(ValueError):
    """A payload that is not the message it should be. Carries the model's name and what was wrong."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(f"not a valid {model}: {reason}")
        self.model = model
        self.reason = reason


class WireModel(BaseModel):
    """A message or a part of one. Encoded as JSON (UTF-8); fields that are None are left out."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="null")

    def encode(self) -> bytes:
        # What model_dump_json calls; that one makes text of it.
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Raises MalformedMessage."""
        try:
            return cls.model_validate_json(payload)
        except ValidationError as error:
            raise malformed(cls.__name__, error) from None


def malformed(model: str, error: ValidationError) -> MalformedMessage:
    """The first problem in words, without the payload's content."""
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "message"
    return MalformedMessage(model, f"{where}: {first['msg']}")
