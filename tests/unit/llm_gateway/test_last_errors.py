"""Which error a request ends with."""

from __future__ import annotations

from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.last_errors import final_error

FIRST = ErrorBody(code="upstream_error", message="It stumbled.", stop="engine_worker")
GONE = ErrorBody(code="stop_lost", message="Replica r is gone.", stop="engine_worker")


def test_before_the_first_token_it_is_the_first_error() -> None:
    assert final_error(Attempt(2, "m", 0.0), FIRST, None) is FIRST


def test_after_it_the_client_hears_how_far_the_answer_came_and_why_the_last_replica_stopped() -> None:
    broke_off = Attempt(1, "m", 0.0, replica="r")
    frame = Data(request_id="0" * 32, sender="r", seq=1, text="a b", token_ids=(4, 5))
    broke_off.add(frame)
    broke_off.fail(GONE)
    error = final_error(broke_off.next("m", 1.0), FIRST, broke_off)
    assert (error.code, error.stop) == ("stop_lost", "engine_worker")
    assert error.message == "The answer broke off after 2 tokens and can't go on: Replica r is gone."
