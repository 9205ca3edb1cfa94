"""Raw prompts, their ids and scores, and a message that goes on: through the relay, with real weights."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from baton_engine import AsyncEngine, EngineConfig
from tests.engine_real.model_folder import require_model
from tests.support.whole_relay import MODEL, WholeRelay, whole_relay

pytestmark = pytest.mark.real_weights

GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 8}


@pytest.fixture
async def relay(nats_url: str, tmp_path: Path) -> AsyncGenerator[WholeRelay, None]:
    engine = AsyncEngine(EngineConfig(model=require_model(), kv_memory_bytes=64 * 2**20))
    async with whole_relay(nats_url, tmp_path, engine) as running:
        yield running


async def complete(relay: WholeRelay, **fields: Any) -> list[dict[str, Any]]:
    response = await relay.client.post("/v1/completions", json=GREEDY | fields)
    assert response.status_code == 200, response.text
    return response.json()["choices"]


async def test_raw_prompts_their_ids_and_scores_and_a_message_that_goes_on(relay: WholeRelay) -> None:
    text = "The capital of France is"
    [choice] = await complete(relay, prompt=text, echo=True, logprobs=1, return_token_ids=True)
    assert choice["text"].startswith(f"{text} Paris")
    told = choice["logprobs"]
    assert "".join(told["tokens"]) == choice["text"]
    assert told["text_offset"] == [
        len("".join(told["tokens"][:place])) for place in range(len(told["tokens"]))
    ]
    assert told["token_logprobs"][0] is None

    [same] = await complete(relay, prompt=choice["prompt_token_ids"], echo=True, logprobs=1)
    assert same["text"] == choice["text"]
    assert same["logprobs"]["tokens"] == told["tokens"]

    several = await complete(relay, prompt=[text, "Two plus two equals", text])
    assert [one["text"] for one in (several[0], several[2])] == [choice["text"].removeprefix(text)] * 2

    chat = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"
    [templated] = await complete(relay, prompt=chat, return_token_ids=True)
    messages = [{"role": "user", "content": "Say hi."}]
    assert templated["text"].startswith("Hello")
    [begun] = await complete(relay, prompt=f"{chat}Hello", max_tokens=4)
    assert ("Hello" + begun["text"])[:8] == templated["text"][:8]

    answer = await relay.answer(
        messages=[{"role": "system", "content": "Be brief."}, *messages],
        **GREEDY | {"retrieval": "off", "return_token_ids": True},
    )
    start = answer["choices"][0]["message"]["content"][:6]
    goes_on = await relay.answer(
        messages=[
            {"role": "system", "content": "Be brief."},
            *messages,
            {"role": "assistant", "content": start},
        ],
        **GREEDY | {"retrieval": "off", "return_token_ids": True},
        continue_final_message=True,
        add_generation_prompt=False,
        echo=True,
    )
    before = answer["prompt_token_ids"]
    assert goes_on["prompt_token_ids"][: len(before)] == before, "the same, and then the answer's beginning"
    assert goes_on["choices"][0]["message"]["content"].startswith(start)
