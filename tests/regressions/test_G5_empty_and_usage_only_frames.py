"""G5: metadata, empty and usage-only chunks through the output filter."""

from __future__ import annotations

from baton_contracts.frames import Data, End, Held, encode_frame
from tests.support.guard_bench import USAGE, guard_bench


async def test_frames_without_text_pass() -> None:
    async with guard_bench() as bench:
        answer = await bench.open({"<PERSON_1>": "Ann"})
        stream = answer.attempt()
        await bench.bus.publish(
            stream.subject, encode_frame(Held(request_id=answer.rid, sender="x-1", stop="engine_worker"))
        )
        await stream.send(answer.prologue())
        await stream.send(answer.data(""))
        await stream.send(answer.data("", 11, 12))
        await stream.send(answer.end())
        prologue, *data, end = await answer.received()
    assert prologue.kind == "prologue"
    assert [frame.text for frame in data if isinstance(frame, Data)] == ["", ""]
    assert isinstance(end, End)
    assert end.usage == USAGE


async def test_an_answer_of_nothing_but_its_end_passes() -> None:
    async with guard_bench() as bench:
        answer = await bench.open()
        await answer.attempt().send(answer.end("length"))
        (end,) = await answer.received()
    assert isinstance(end, End)
    assert (end.finish_reason, end.usage) == ("length", USAGE)
