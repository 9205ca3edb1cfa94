"""What has come of an answer, told to its client or not."""

from __future__ import annotations

from baton_contracts.frames import Data
from baton_contracts.spans import AttributeValue
from baton_edge_api.answer_so_far import AnswerSoFar


def test_what_the_client_is_not_told_was_written_all_the_same() -> None:
    """Thinking that it did not want, tokens that spell nothing yet."""
    answer = AnswerSoFar(1, began=10.0)
    answer.add(Data(request_id="0" * 32, sender="x", seq=1, reasoning="Hm.", token_ids=(1, 2)), None)
    answer.add(Data(request_id="0" * 32, sender="x", seq=2, token_ids=(3,)), None)
    answer.add(Data(request_id="0" * 32, sender="x", seq=3, text="Yes", token_ids=(4,)), 10.5)
    assert answer.used.completion_tokens == 4
    assert answer.answers[0].text == "Yes"
    told: dict[str, AttributeValue] = {}
    answer.describe(told)
    assert (told["chunks"], told["ttft_ms"]) == (1, 500.0), "as the client saw it"


def test_pieces_without_token_ids_count_as_one_each() -> None:
    """Another server's: the gateway books what was sent, so the client's budget pays for it."""
    answer = AnswerSoFar(1, began=10.0)
    for text in ("Yes", " it", "", " is"):
        answer.add(Data(request_id="0" * 32, sender="x", seq=1, text=text), 10.5)
    assert answer.used.completion_tokens == 3
