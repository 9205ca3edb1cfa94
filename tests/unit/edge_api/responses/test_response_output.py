"""The answer's items: however its frames are cut, they and the events add up to the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data, End, Prologue, RatedToken, TokenLogprob, ToolCallPiece, Usage
from baton_contracts.openai_response_objects import ResponseEvent, ResponseObject
from baton_contracts.openai_responses import ResponseRequest
from baton_edge_api.answer_so_far import AnswerSoFar
from baton_edge_api.responses.events import EventWriter
from baton_edge_api.responses.ids import item_id, place_of, request_id_of
from baton_edge_api.responses.output import Output
from baton_edge_api.responses.telling import Telling
from tests.support.openai_responses import events_of, judged

RID = "0af7651916cd43dd8448eb211c80319c"
KEY = RID + "0a1b2c3d"
WIRE = ResponseRequest(model="m", input="Hi")


def data(**more: Any) -> Data:
    return Data(request_id=RID, sender="x", seq=0, **more)


def call(text: str = "", index: int = 0, *, begins: bool = False, is_whole: bool | None = None) -> Data:
    named = {"call_id": f"c{index}", "name": "add"} if begins else {}
    return data(tool_calls=(ToolCallPiece(index=index, arguments=text, is_whole=is_whole, **named),))


def so_far(reason: str = "stop") -> AnswerSoFar:
    answer = AnswerSoFar(1, 0.0)
    frame: dict[str, Any] = {"request_id": RID, "sender": "x", "seq": 0}
    answer.prologue = Prologue(**frame, model="m", replica="r", gateway="g", guard="o")
    answer.end = End(**frame, finish_reason=reason, usage=Usage(prompt_tokens=1, completion_tokens=2))  # type: ignore[arg-type]
    return answer


def told(frames: list[Data], reason: str = "stop") -> list[dict[str, Any]]:
    answer = so_far(reason)
    assert answer.prologue is not None
    writer = EventWriter(Telling(KEY, WIRE, 1_700_000_000))
    body = writer.begin(answer.prologue) + b"".join(map(writer.data, frames))
    events = events_of((body + writer.finish(answer) + writer.last(answer)).decode())
    for event in events:
        ResponseEvent.model_validate(event)
    return events


pieces = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4)


@given(pieces, pieces, pieces, pieces, st.booleans())
def test_items_add_up_however_the_frames_are_cut(
    thinking: list[str], text: list[str], first: list[str], second: list[str], later: bool
) -> None:
    frames = [data(reasoning=piece) for piece in thinking] + [data(text=piece) for piece in text]
    for index, arguments in enumerate((first, second)):
        frames += [call(index=index, begins=True), *(call(piece, index) for piece in arguments)]
        frames.append(call(index=index, is_whole=True))
    frames += [data(text="more")] * later
    response = told(frames)[-1]["response"]
    ResponseObject.model_validate(response)
    reasoning, message, *calls = response["output"]
    assert reasoning["content"][0]["text"] == "".join(thinking)
    assert message["content"][0]["text"] == "".join(text)
    assert [item.get("arguments") for item in calls[:2]] == ["".join(first), "".join(second)]
    assert [item["type"] for item in calls[2:]] == ["message"] * later


def test_what_is_under_way_at_the_token_limit_is_incomplete() -> None:
    events = told([data(text="A"), call("{", begins=True)], "length")
    assert [item["status"] for item in events[-1]["response"]["output"]] == ["completed", "incomplete"]
    assert events[-1]["type"] == "response.incomplete"


def test_a_frame_that_says_nothing_makes_no_event() -> None:
    writer = EventWriter(Telling(KEY, WIRE, 1))
    assert writer.data(data(token_ids=(1,))) == b""


def test_the_bytes_of_a_delta() -> None:
    writer = EventWriter(Telling(KEY, WIRE, 1))
    writer.data(data(text="A"))
    assert (
        writer.data(data(text='"☃'))
        == (
            "event: response.output_text.delta\n"
            f'data: {{"type":"response.output_text.delta","item_id":"msg_{KEY}o0","output_index":0,'
            '"content_index":0,"delta":"\\"☃","logprobs":[],"sequence_number":3}\n\n'
        ).encode()
    )


def test_logprobs_go_with_the_text_and_not_with_thinking_or_calls() -> None:
    token = RatedToken(text="A", token_bytes=(65,), logprob=-1.0)
    rated = (TokenLogprob(**token.model_dump()),)
    output = Output()
    output.take(data(reasoning="Hm", logprobs=rated))
    output.take(data(text="A", logprobs=rated))
    output.take(data(logprobs=rated))
    output.take(call("{}", begins=True).model_copy(update={"logprobs": rated}))
    assert [len(item.logprobs) for item in output.items] == [0, 2, 0]


def test_a_broken_stream_ends_with_the_error_and_the_part() -> None:
    writer = EventWriter(Telling(KEY, WIRE, 1))
    answer = so_far()
    answer.end = None
    assert answer.prologue is not None
    error = ErrorBody(code="rate_limit_exceeded", message="Slower.")
    body = writer.begin(answer.prologue) + writer.data(data(text="A")) + writer.broken(error, answer)
    *_, why, failed = events_of(body.decode())
    assert (why["code"], why["message"], why["param"]) == ("rate_limit_exceeded", "Slower.", None)
    response = judged(failed["response"])
    assert response["error"] == {"code": "rate_limit_exceeded", "message": "Slower."}
    assert response["output"][0]["status"] == "incomplete"


def test_ids_say_where_a_thing_is() -> None:
    assert request_id_of(f"resp_{KEY}") == RID
    place = place_of(item_id("function_call", KEY, 12, is_input=False))
    assert place is not None
    assert (place.response_id, place.is_input, place.number) == (f"resp_{KEY}", False, 12)
    for strange in ("", f"resp_{KEY}0", f"resp_{KEY.upper()}", f"resp_{KEY}\n", "resp_../x"):
        assert request_id_of(strange) is None
    assert place_of(f"msg_{KEY}x1") is None
