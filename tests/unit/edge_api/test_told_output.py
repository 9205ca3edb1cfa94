"""What the events of a stream told of its output is the output itself, wherever they break off."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from baton_contracts.frames import Data, TokenLogprob, ToolCallPiece
from baton_contracts.openai_responses import ResponseRequest
from baton_edge_api.background.told_output import told_output
from baton_edge_api.responses.events import EventWriter
from baton_edge_api.responses.response_object import output_items
from baton_edge_api.responses.telling import Telling

KEY = "0" * 40


def frame(**fields: Any) -> Data:
    return Data(request_id="0" * 32, sender="x", seq=0, token_ids=(1,), **fields)


LOGPROB = TokenLogprob(text="o", token_bytes=(111,), logprob=-0.5)
ANSWER = [
    frame(reasoning="Let me"),
    frame(reasoning=" think."),
    frame(text="Hell", logprobs=(LOGPROB,)),
    frame(text="o ☃\n\nevent: no", logprobs=(LOGPROB,)),
    frame(tool_calls=(ToolCallPiece(index=0, call_id="call_1", name="add"),)),
    frame(tool_calls=(ToolCallPiece(index=0, arguments='{"a":'),)),
    frame(tool_calls=(ToolCallPiece(index=0, arguments="1}", is_whole=True),)),
    frame(tool_calls=(ToolCallPiece(index=1, call_id="call_2", name="add"),)),
]


@pytest.mark.parametrize("num_frames", range(len(ANSWER) + 1))
def test_it_is_what_the_lost_edge_would_have_kept_of_an_answer_cut_short(num_frames: int) -> None:
    telling = Telling(KEY, ResponseRequest(model="m", input="Hello?"), created=0)
    writer = EventWriter(telling)
    pieces = [writer.data(frame) for frame in ANSWER[:num_frames]]
    telling.output.close(is_cut=True)
    assert told_output(pieces) == orjson.loads(orjson.dumps(output_items(telling.output, KEY)))
    assert told_output([b"".join(pieces)]) == told_output(pieces)


def test_of_what_is_cut_nothing_is_called_complete() -> None:
    telling = Telling(KEY, ResponseRequest(model="m", input="Hello?"), created=0)
    [item] = told_output([EventWriter(telling).data(frame(text="Hel"))])
    part = {"type": "output_text", "text": "Hel", "annotations": [], "logprobs": []}
    assert item == {
        "id": f"msg_{KEY}o0",
        "type": "message",
        "role": "assistant",
        "status": "incomplete",
        "content": [part],
    }
