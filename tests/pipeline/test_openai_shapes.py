"""Every object and every stream chunk of every endpoint is one of OpenAI's, by its own package, strictly."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from openai.types import Batch, Completion, CreateEmbeddingResponse, FileDeleted, FileObject, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from openai.types.responses.response_item_list import ResponseItemList
from openai.types.shared import ErrorObject

from tests.support.api_stage import api_stage
from tests.support.fake_engine import FakeEngine
from tests.support.nats_server import running_nats_server
from tests.support.openai_answers import TOOLS
from tests.support.openai_responses import TOOLS as RESPONSE_TOOLS
from tests.support.openai_shapes import RESPONSE_EVENT, completion_chunk, events_of, judged
from tests.support.scripted_answer import Script
from tests.support.scripted_embedder import MODEL as EMBEDDER
from tests.support.whole_relay import MODEL

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXT = (
    "<think>\nHm, two.\n</think>\n\nI look.\n"
    '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"a": -2}}\n</tool_call>'
)
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Add."}], "max_tokens": 200}
RAW: dict[str, Any] = {"model": MODEL, "prompt": "Add.", "max_tokens": 200}
RESPONSE: dict[str, Any] = {"model": MODEL, "input": "Add.", "max_output_tokens": 200}
STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture(scope="module")
def own_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_nats_server(tmp_path_factory.mktemp("nats")) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(own_nats: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    words = tuple(TEXT[start : start + 5] for start in range(0, len(TEXT), 5))
    engine = FakeEngine(Script(words=words))
    engine.tokenizer.chat_template_source = "{{ messages }}<think>"
    async with api_stage(own_nats, tmp_path_factory.mktemp("home"), engine) as relay:
        yield relay.client


async def post(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> httpx.Response:
    answer = await http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer


CHATS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tools": {"tools": TOOLS},
    "older functions": {"functions": [tool["function"] for tool in TOOLS]},
    "several": {"n": 2, "logprobs": True, "top_logprobs": 1, "return_token_ids": True},
}


@pytest.mark.parametrize("name", CHATS)
async def test_chats(http: httpx.AsyncClient, name: str) -> None:
    asked = CHAT | CHATS[name]
    whole = judged(ChatCompletion, (await post(http, "/v1/chat/completions", asked)).json())
    events = events_of((await post(http, "/v1/chat/completions", asked | STREAMED)).text)
    chunks = [judged(ChatCompletionChunk, event) for event in events]
    assert len(whole.choices) == asked.get("n", 1)
    assert whole.choices[0].message.model_extra["reasoning"] == "Hm, two."
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens > 0
    assert bool(whole.choices[0].message.tool_calls) == (name == "tools")


COMPLETIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "several": {"prompt": ["Add.", "Look."], "n": 2, "logprobs": 1, "echo": False},
}


@pytest.mark.parametrize("name", COMPLETIONS)
async def test_completions(http: httpx.AsyncClient, name: str) -> None:
    asked = RAW | COMPLETIONS[name]
    whole = judged(Completion, (await post(http, "/v1/completions", asked)).json())
    events = events_of((await post(http, "/v1/completions", asked | STREAMED)).text)
    ends = [choice["finish_reason"] for event in events for choice in event["choices"]]
    assert ends.count("stop") == len(whole.choices)
    chunks = [completion_chunk(event) for event in events]
    assert len(whole.choices) == (4 if name == "several" else 1)
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens > 0


@pytest.mark.parametrize("more", [{}, {"tools": RESPONSE_TOOLS}], ids=["plain", "tools"])
async def test_responses(http: httpx.AsyncClient, more: dict[str, Any]) -> None:
    answer = (await post(http, "/v1/responses", RESPONSE | more)).json()
    whole = judged(Response, answer)
    assert {item.type for item in whole.output} >= {"reasoning", "message"}
    body = (await post(http, "/v1/responses", RESPONSE | more | {"stream": True})).text
    events = [judged(RESPONSE_EVENT, event) for event in events_of(body)]
    assert events[-1].response.output[0].type == "reasoning"
    assert (await http.get(f"/v1/responses/{whole.id}")).json() == answer
    items = judged(ResponseItemList, (await http.get(f"/v1/responses/{whole.id}/input_items")).json())
    assert [item.role for item in items.data] == ["user"]


async def test_embeddings_and_models(http: httpx.AsyncClient) -> None:
    asked = {"model": EMBEDDER, "input": ["a", "bc"]}
    vectors = judged(CreateEmbeddingResponse, (await post(http, "/v1/embeddings", asked)).json())
    assert [len(each.embedding) for each in vectors.data] == [3, 3]
    listed = (await http.get("/v1/models")).json()
    assert set(listed) == {"object", "data"}
    assert {judged(Model, card).id for card in listed["data"]} >= {MODEL, EMBEDDER}
    assert judged(Model, (await http.get(f"/v1/models/{MODEL}")).json()).owned_by == "baton"


async def test_files_and_batches(http: httpx.AsyncClient) -> None:
    line = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}
    given = await http.post(
        "/v1/files", files={"file": ("lines.jsonl", json.dumps(line))}, data={"purpose": "batch"}
    )
    file = judged(FileObject, given.json())
    asked = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = judged(Batch, (await post(http, "/v1/batches", asked | {"metadata": {"a": "b"}})).json())
    for path, one, published in (("files", file, FileObject), ("batches", batch, Batch)):
        page = (await http.get(f"/v1/{path}", params={"limit": 1})).json()
        assert page | {"data": []} == {
            "object": "list",
            "data": [],
            "first_id": one.id,
            "last_id": one.id,
            "has_more": False,
        }
        assert judged(published, page["data"][0]).id == one.id
        assert judged(published, (await http.get(f"/v1/{path}/{one.id}")).json()).id == one.id
    assert (await http.post(f"/v1/batches/{batch.id}/cancel")).status_code in (200, 409)
    gone = judged(FileDeleted, (await http.delete(f"/v1/files/{file.id}")).json())
    assert gone.deleted


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", {}, 400),
        ("/v1/completions", RAW | {"model": "none"}, 404),
        ("/v1/responses", RESPONSE | {"previous_response_id": "resp_none"}, 404),
        ("/v1/embeddings", {"model": "none", "input": "a"}, 404),
        ("/v1/batches", {"input_file_id": "file-1"}, 400),
    ],
)
async def test_errors(http: httpx.AsyncClient, path: str, body: dict[str, Any], status: int) -> None:
    answer = await http.post(path, json=body)
    assert (answer.status_code, set(answer.json())) == (status, {"error"}), answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    judged(ErrorObject, error)
