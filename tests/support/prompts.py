"""Prompts in few words: role and parts of each message, or a raw text."""

from __future__ import annotations

from typing import Any

from baton_contracts.prompt import Message, Part, Prompt


def prompt(*messages: tuple[Any, tuple[str, ...]]) -> Prompt:
    return Prompt(
        messages=tuple(
            Message(role=role, parts=tuple(Part(text=text) for text in texts)) for role, texts in messages
        )
    )


def raw(text: str = "One two", **more: Any) -> Prompt:
    return Prompt(messages=(Message(role="user", parts=(Part(text=text),)),), rendering="raw", **more)
