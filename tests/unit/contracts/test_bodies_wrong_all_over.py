"""A body that is wrong in each of its thousands of places is refused for the first one: to list all of them
would take a thousand times the body's memory."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from baton_contracts.openai_batches import BatchRequest
from baton_contracts.openai_completions import CompletionRequest
from baton_contracts.openai_requests import ChatCompletionRequest
from baton_contracts.openai_responses import ResponseRequest

WRONG = [None] * 3000
WRONG_MEMBERS = {str(number): None for number in range(3000)}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
RESPONSE = {"model": "m", "input": "Hi"}
BATCH = {"input_file_id": "file-1", "endpoint": "/v1/completions", "completion_window": "24h"}


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (ChatCompletionRequest, CHAT | {"messages": WRONG}),
        (ChatCompletionRequest, {"model": "m", "messages": [{"role": "user", "content": WRONG}]}),
        (ChatCompletionRequest, {"model": "m", "messages": [{"role": "assistant", "content": WRONG}]}),
        (ChatCompletionRequest, CHAT | {"logit_bias": WRONG_MEMBERS}),
        (ChatCompletionRequest, CHAT | {"metadata": WRONG_MEMBERS}),
        (CompletionRequest, {"model": "m", "prompt": [1, *WRONG]}),
        (CompletionRequest, {"model": "m", "prompt": [[1, *WRONG]] * 3}),
        (ResponseRequest, RESPONSE | {"input": WRONG}),
        (ResponseRequest, {"model": "m", "input": [{"role": "user", "content": WRONG}]}),
        (
            ResponseRequest,
            {"model": "m", "input": [{"type": "function_call_output", "call_id": "c", "output": WRONG}]},
        ),
        (ResponseRequest, RESPONSE | {"metadata": WRONG_MEMBERS}),
        (BatchRequest, BATCH | {"metadata": WRONG_MEMBERS}),
    ],
)
def test_the_first_wrong_place_is_enough(model: type[BaseModel], body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(body)
    assert refused.value.error_count() == 1
