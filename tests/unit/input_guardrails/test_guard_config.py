"""Rules files of both guardrails: the packaged ones load, bad ones are refused with the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from baton_common.rules_file import ConfigError
from baton_input_guardrails import config as input_config
from baton_input_guardrails.wiring import build_judge, build_topics
from baton_output_guardrails import config as output_config
from baton_output_guardrails.wiring import compile_rules


def test_the_packaged_files_say_what_the_defaults_are() -> None:
    assert input_config.load_config(None) == input_config.InputConfig()
    assert output_config.load_config(None) == output_config.OutputConfig()


def test_one_file_serves_both(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        "input:\n  injection:\n    monitor: [role]\n    patterns:\n"
        "      - {name: own.word, kind: override, pattern: 'open\\s+sesame'}\n"
        "  topics:\n    phrases: [secret plan, {text: bomb, whole_words: false}]\n"
        "output:\n  deny:\n    secrets: false\n    phrases: [kill]\n"
    )
    rules = input_config.load_config(path)
    assert build_judge(rules).judge("Open sesame", "client") is not None
    assert build_topics(rules).active
    deny = output_config.load_config(path)
    assert compile_rules(deny).automaton.first_in("kill!") == 0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("input: {injection: {patterns: [{name: x, kind: role, pattern: '(a+)+\\1'}]}}", "RE2 refuses"),
        ("input: {personal_data: {patterns: [{entity: ID, pattern: '(?<=a)b'}]}}", "RE2 refuses"),
        ("input: {injection: {mode: maybe}}", "input.injection.mode"),
        ("input: {typo: 1}", "input.typo"),
        ("- a list", "mapping"),
        ("input: [", "rules.yaml"),
    ],
)
def test_bad_input_rules_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        input_config.load_config(path)


def test_bad_output_rules_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("output: {deny: {phrases: 7}}")
    with pytest.raises(ConfigError, match=r"output\.deny\.phrases"):
        output_config.load_config(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for load, error in (
        (input_config.load_config, ConfigError),
        (output_config.load_config, ConfigError),
    ):
        with pytest.raises(error, match=r"nothing\.yaml"):
            load(tmp_path / "nothing.yaml")
