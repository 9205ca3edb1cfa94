"""G7: an attack in base64, URL encoding, homoglyphs, zero-width joints, other languages, in HTML or code."""

from __future__ import annotations

import pytest

from baton_input_guardrails.injection import InjectionJudge
from tests.support.injection_set import ATTACKS, KNOWN_MISSED

DISGUISES = {
    "base64": "base64",
    "percent": "percent escapes",
    "homoglyphs": "look-alikes",
    "zero width": "plain",
    "fullwidth": "plain",
    "hex": "hex",
    "tag characters": "hidden characters",
    "german": "plain",
    "chinese": "plain",
    "russian": "plain",
    "doc alt text": "plain",
    "doc comment": "plain",
    "doc code comment": "plain",
}


@pytest.mark.parametrize(("name", "spelling"), DISGUISES.items())
def test_a_disguise_does_not_help(name: str, spelling: str) -> None:
    (sample,) = [one for one in ATTACKS if one.name == name]
    verdict = InjectionJudge().judge(sample.text, sample.origin)
    assert verdict is not None
    assert (verdict.blocks, verdict.spelling) == (True, spelling)


def test_what_is_not_found_is_listed() -> None:
    assert {"rot13", "payload split", "polish"} <= KNOWN_MISSED
