from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import baton_engine
from baton_engine import LLM, EngineRequest, InvalidParameter, SamplingParams
from tests.support.tiny_model import tiny_config, tiny_parts

GREEDY = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)


def tiny_llm(**changes: Any) -> LLM:
    config = {key: value for key, value in tiny_config(**changes).__dict__.items() if key != "model"}
    return LLM("tiny", parts=tiny_parts(), **config)


def test_the_public_names() -> None:
    assert sorted(baton_engine.__all__) == [
        "Admission",
        "AsyncEngine",
        "BlocksRemoved",
        "BlocksStored",
        "CacheCleared",
        "CancelReport",
        "ConfigError",
        "ContextLengthExceeded",
        "DraftSpeculation",
        "DuplicateRequest",
        "EngineConfig",
        "EngineError",
        "EngineRequest",
        "EngineStats",
        "EngineUnavailable",
        "InvalidParameter",
        "KVCapacityExceeded",
        "KVEvent",
        "KVEventBatch",
        "LLM",
        "ModelLoadError",
        "NgramSpeculation",
        "OutputFormat",
        "Preemption",
        "PrefillChunk",
        "QueueFull",
        "RequestDelta",
        "RequestFailure",
        "RequestOutput",
        "RequestRejected",
        "SamplingParams",
        "SpeculationStats",
        "StepProfile",
        "StructuredOutput",
        "Timings",
        "TokenLogprobs",
        "ToolCallDelta",
        "ToolCallFormat",
        "Usage",
        "prefix_hashes",
    ]


def test_prompts_in_answers_out_in_the_same_order() -> None:
    llm = tiny_llm()
    one = llm.generate("hello", GREEDY)[0]
    short = SamplingParams(max_tokens=2, temperature=0, ignore_eos=True)
    several = llm.generate(["hi", llm.tokenizer.encode("hello"), "hello"], [short, GREEDY, short])
    assert [len(output.token_ids) for output in several] == [2, 6, 2]
    assert several[1].token_ids == one.token_ids
    assert several[2].token_ids == one.token_ids[:2]
    assert [output.finish_reason for output in several] == ["length"] * 3


def test_chat_goes_through_the_template() -> None:
    llm = tiny_llm()
    output = llm.chat([{"role": "user", "content": "hi"}], GREEDY)
    assert output.usage.prompt_tokens == 1 + len("user: hi\nassistant: ")


def test_a_refused_prompt_leaves_nothing_behind() -> None:
    llm = tiny_llm()
    with pytest.raises(InvalidParameter):
        llm.generate(["fine", []], GREEDY)
    stats = llm.stats()
    assert (stats.running, stats.waiting, stats.kv_blocks_held) == (0, 0, 0)
    assert len(llm.generate("fine", GREEDY)[0].token_ids) == 6


def test_a_stream_left_early_is_cancelled() -> None:
    llm = tiny_llm()
    stream = llm.stream(EngineRequest("a", prompt_token_ids=[1, 2], sampling=GREEDY))
    assert len(next(stream).token_ids) == 1
    assert llm.stats().kv_blocks_held == 1
    stream.close()  # type: ignore[attr-defined]
    assert llm.stats().kv_blocks_held == 0
    whole = list(llm.stream(EngineRequest("a", prompt_token_ids=[1, 2], sampling=GREEDY)))
    assert [delta.finish_reason for delta in whole] == [None] * 5 + ["length"]


def test_streams_that_are_read_in_turns_get_their_own_tokens_each() -> None:
    llm = tiny_llm()
    prompts = [(1, 2, 3), (4, 5, 6, 7)]
    alone = [answer.token_ids for answer in llm.generate(prompts, GREEDY)]
    streams = [
        llm.stream(EngineRequest(f"s{at}", prompt_token_ids=prompt, sampling=GREEDY))
        for at, prompt in enumerate(prompts)
    ]
    first = next(streams[0])
    assert llm.generate((8, 9), GREEDY)[0].finish_reason == "length"  # runs beside an open stream
    turns = [first, *(delta for pair in zip(*streams, strict=False) for delta in pair)]
    turns += [delta for stream in streams for delta in stream]
    for at, token_ids in enumerate(alone):
        mine = [delta for delta in turns if delta.request_id == f"s{at}"]
        assert sum((delta.token_ids for delta in mine), ()) == token_ids
        assert mine[-1].finish_reason == "length"
    assert llm.stats().kv_blocks_held == 0


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "2000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_how_threads_wait_is_set_before_torch_unless_the_environment_says(
    given: dict[str, str], expected: str
) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("GOMP_", "OMP_"))}
    program = "import sys, os\nimport baton_engine.openmp as openmp\nprint(os.environ.get('GOMP_SPINCOUNT'))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=clean | given, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


def test_the_command_line_names_what_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from baton_engine.__main__ import main

    monkeypatch.setattr(sys, "argv", ["baton_engine", "--model", str(tmp_path / "nowhere"), "hi"])
    assert main() == 1
    assert "nowhere" in capsys.readouterr().err
