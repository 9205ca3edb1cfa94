"""The ledger row of each way in which an attempt can end."""

from __future__ import annotations

from typing import Any

from baton_contracts.envelope import Envelope, Tenant
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data, End, TokenLogprob, ToolCallPiece, Usage
from baton_llm_gateway.attempt import Attempt

RID = "0123456789abcdef0123456789abcdef"
ENVELOPE = Envelope(
    request_id=RID,
    run_id="deadbeef",
    tenant=Tenant(tenant_id="acme", team="core", key_id="dev"),
    edge="edge_api-1",
    conversation_id="c",
    deadline=100.0,
    sent_at=1.0,
)
LOST = ErrorBody(code="stop_lost", message="gone")


def attempt(tokens: int = 0) -> Attempt:
    made = Attempt(2, "m", started_at=10.0, replica="engine_worker-1")
    for number in range(tokens):
        made.add(Data(request_id=RID, sender="x", seq=number, text="w ", token_ids=(number,)))
    return made


def end(reason: Any, **usage: int) -> End:
    return End(request_id=RID, sender="x", seq=9, finish_reason=reason, usage=Usage(**usage))


def row(made: Attempt) -> tuple[Any, ...]:
    record = made.record(ENVELOPE, ended_at=12.5)
    assert (record.request_id, record.run_id, record.attempt) == (RID, "deadbeef", 2)
    assert (record.tenant.team, record.model, record.replica) == ("core", "m", "engine_worker-1")
    assert (record.started_at, record.ended_at) == (10.0, 12.5)
    usage = record.usage
    counts = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
    return record.outcome, record.finish_reason, record.error_code, counts


def test_finished() -> None:
    made = attempt(tokens=2)
    made.end(end("length", prompt_tokens=7, cached_tokens=4, completion_tokens=3))
    assert row(made) == ("finished", "length", None, (7, 4, 3))


def test_cancelled_with_the_engines_last_word() -> None:
    made = attempt(tokens=2)
    made.end(end("cancelled", prompt_tokens=7, completion_tokens=2))
    assert row(made) == ("cancelled", "cancelled", None, (7, 0, 2))
    assert made.confirmed


def test_cancelled_without_it_is_billed_by_what_was_emitted() -> None:
    made = attempt(tokens=5)
    made.cancel()
    assert row(made) == ("cancelled", "cancelled", None, (0, 0, 5))
    assert not made.confirmed


def test_failed_with_the_engines_count_and_without() -> None:
    counted, silent = attempt(tokens=1), attempt(tokens=3)
    counted.fail(LOST, Usage(prompt_tokens=7, completion_tokens=1))
    silent.fail(LOST)
    assert row(counted) == ("error", None, "stop_lost", (7, 0, 1))
    assert row(silent) == ("error", None, "stop_lost", (0, 0, 3))


def test_a_finish_overtaken_by_our_own_deadline_keeps_the_engines_count() -> None:
    made = attempt(tokens=1)
    made.end(end("cancelled", prompt_tokens=7, completion_tokens=4))
    made.fail(ErrorBody(code="deadline_exceeded", message=""))
    assert row(made) == ("error", "cancelled", "deadline_exceeded", (7, 0, 4))


def test_content_is_text_or_token_ids() -> None:
    assert not attempt().has_content
    held_back = attempt()
    held_back.add(Data(request_id=RID, sender="x", seq=0, token_ids=(5,)))
    assert held_back.has_content
    assert (held_back.text, held_back.token_ids) == ("", {0: [5]})


def data(**fields: Any) -> Data:
    return Data(request_id=RID, sender="x", seq=0, **fields)


def test_thinking_and_calls_are_kept_whole() -> None:
    made = attempt()
    made.add(data(reasoning="Hm"))
    made.add(data(reasoning=".", tool_calls=(ToolCallPiece(index=0, call_id="c", name="f", arguments="{"),)))
    made.add(data(tool_calls=(ToolCallPiece(index=0, arguments="}", is_whole=True),)))
    assert "".join(made.reasoning) == "Hm."
    whole = ToolCallPiece(index=0, call_id="c", name="f", arguments="{}", is_whole=True)
    assert made.calls == {0: whole}
    assert made.can_be_repeated


def test_further_answers_and_logprobs_count_but_can_not_be_repeated() -> None:
    several, rated = attempt(), attempt()
    several.add(data(index=1, text="b", token_ids=(1, 2)))
    rated.add(
        data(text="a", token_ids=(1,), logprobs=(TokenLogprob(text="a", token_bytes=(97,), logprob=0),))
    )
    assert not several.can_be_repeated
    assert not rated.can_be_repeated
    several.cancel()
    assert row(several)[3] == (0, 0, 2)


def lost_after(tokens: int) -> Attempt:
    made = attempt(tokens)
    made.prompt_tokens = 7
    made.fail(LOST)
    return made


def test_a_lost_attempt_that_nobody_takes_over_is_billed_with_its_prompt() -> None:
    assert row(lost_after(3)) == ("error", None, "stop_lost", (7, 0, 3))


def test_the_rows_of_a_migrated_answer_add_up_to_one_bill() -> None:
    first = lost_after(3)
    second = first.next("m", started_at=11.0)
    second.replica, second.prompt_tokens = "engine_worker-2", 7
    first.supersede()
    second.add(data(text="more", token_ids=(3,)))
    second.end(end("stop", prompt_tokens=7, cached_tokens=4, completion_tokens=5))
    assert row(first) == ("migrated", None, "stop_lost", (0, 0, 3))
    record = second.record(ENVELOPE, ended_at=13.0)
    assert (record.attempt, record.outcome) == (3, "finished")
    assert record.usage == Usage(prompt_tokens=7, cached_tokens=4, completion_tokens=2)
    assert second.text == "w w w more"


def test_one_that_failed_before_its_first_token_costs_nothing_once_another_has_it() -> None:
    first = lost_after(0)
    second = first.next("m", started_at=11.0)
    first.supersede()
    assert row(first) == ("error", None, "stop_lost", (0, 0, 0))
    assert (second.resumed, second.has_content) == ((), False)


def test_what_the_next_one_goes_on_behind() -> None:
    first = attempt(2)
    first.add(data(index=1, text="b", token_ids=(8, 9)))
    second = first.next("m", started_at=11.0)
    assert second.resumed == ((0, 1), (8, 9))
    assert second.has_content
    assert not second.has_begun
    second.add(data(index=1, text="c", token_ids=(10,)))
    assert second.next("m", started_at=12.0).resumed == ((0, 1), (8, 9, 10))


def test_text_without_token_ids_can_not_go_on_elsewhere() -> None:
    made = attempt()
    made.add(data(text="of a provider"))
    assert (made.has_content, made.can_go_on) == (True, False)
    ours = attempt(1)
    ours.add(data(text="held back until now"))
    assert ours.can_go_on
