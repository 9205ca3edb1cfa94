"""The edge's HTTP face as the command line reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from baton_cli.commands.ask import ask, figures
from baton_cli.edge_client import Answer, EdgeAddress, EdgeClient, edge_address
from baton_cli.errors import CliError, EdgeRefused, EdgeUnreachable

RID = "0123456789abcdef0123456789abcdef"
Handler = Callable[[httpx.Request], httpx.Response]


def client_of(handler: Handler, times: list[float] | None = None) -> EdgeClient:
    clock = iter(times or [])
    return EdgeClient(
        EdgeAddress("http://edge", "sk-key"), httpx.MockTransport(handler), clock=lambda: next(clock, 9.0)
    )


def stream_of(*events: str) -> Handler:
    def answer(_: httpx.Request) -> httpx.Response:
        body = "".join(events).encode()
        return httpx.Response(200, headers={"x-request-id": RID}, content=body)

    return answer


def chunk(content: str | None = None, finish: str | None = None, **fields: Any) -> str:
    delta = {} if content is None else {"content": content}
    body = {"model": "tiny", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **fields}
    return f"data: {json.dumps(body)}\n\n"


def text_of(client: EdgeClient, answer: Answer) -> str:
    with client.chat({"model": "auto", "messages": []}, answer) as pieces:
        return "".join(pieces)


def test_an_answer_is_read_with_its_figures() -> None:
    usage = 'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}}\n\n'
    events = (
        ": keep-alive\n\n",
        chunk(""),
        chunk("Hel"),
        chunk("lo"),
        chunk(finish="stop"),
        usage,
        "data: [DONE]\n\n",
    )
    answer = Answer()
    assert text_of(client_of(stream_of(*events), times=[10.0, 10.2, 10.6]), answer) == "Hello"
    assert answer.text == "Hello"
    assert answer.request_id == RID
    assert (answer.model, answer.finish_reason, answer.prompt_tokens, answer.num_tokens) == (
        "tiny",
        "stop",
        7,
        5,
    )
    assert answer.first_token_seconds == pytest.approx(0.2)
    assert answer.seconds_per_token == pytest.approx(0.1)
    assert figures(answer) == f"TTFT 200 ms · TPOT 100.0 ms · 5 tokens · tiny · finish stop · request {RID}"


def test_the_request_carries_key_and_stream_options() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, content=b"data: [DONE]\n\n")

    text_of(client_of(handler), Answer())
    assert seen[0].headers["authorization"] == "Bearer sk-key"
    body = json.loads(seen[0].content)
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


def test_an_error_in_mid_stream_is_raised_after_the_text_before_it() -> None:
    error = 'event: error\ndata: {"error": {"message": "engine lost", "code": "stop_lost"}}\n\n'
    got: list[str] = []
    with (
        pytest.raises(EdgeRefused, match="engine lost") as caught,
        client_of(stream_of(chunk("Hel"), error)).chat({}, Answer()) as pieces,
    ):
        got.extend(pieces)
    assert caught.value.code == "stop_lost"
    assert RID in str(caught.value)


def test_a_stream_that_just_ends_is_no_answer() -> None:
    with pytest.raises(CliError, match="broke off"):
        text_of(client_of(stream_of(chunk("Hel"))), Answer())


def test_a_refusal_keeps_status_code_and_message() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        body = {
            "error": {"message": "no such model", "type": "x", "param": "model", "code": "model_not_found"}
        }
        return httpx.Response(404, json=body, headers={"x-request-id": RID})

    with pytest.raises(EdgeRefused) as caught:
        text_of(client_of(handler), Answer())
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    assert str(caught.value) == f"404 model_not_found: no such model (request {RID})"


def test_a_refusal_that_is_not_json_is_shown_as_it_is() -> None:
    with pytest.raises(EdgeRefused, match="502: Bad Gateway from a proxy"):
        client_of(lambda _: httpx.Response(502, text="Bad Gateway from a proxy")).trace(RID)


def test_an_edge_that_is_not_there_says_make_up() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(EdgeUnreachable, match=r"http://edge.*make up"):
        client_of(handler).trace(RID)
    with pytest.raises(EdgeUnreachable):
        text_of(client_of(handler), Answer())


def test_a_connection_that_breaks_in_mid_stream_is_a_sentence() -> None:
    class Broken(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield chunk("Hel").encode()
            raise httpx.ReadError("reset")

    with pytest.raises(CliError, match=r"connection to http://edge broke in the middle .*reset"):
        text_of(client_of(lambda _: httpx.Response(200, stream=Broken())), Answer())


def test_one_token_has_no_time_between_tokens() -> None:
    answer = Answer(first_token_seconds=0.1, last_token_seconds=0.1, completion_tokens=1)
    assert answer.seconds_per_token is None
    assert figures(answer) == "TTFT 100 ms · 1 tokens"


def test_the_address_comes_from_options_environment_and_home(tmp_path: Path) -> None:
    environment = {"BATON_HOME": str(tmp_path), "BATON_PORT": "9000"}
    with pytest.raises(CliError, match="No API key"):
        edge_address(environment)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "dev_key").write_text("sk-kept\n")
    assert edge_address(environment) == EdgeAddress("http://127.0.0.1:9000", "sk-kept")
    environment |= {"BATON_DEV_KEY": "sk-dev", "BATON_URL": "http://elsewhere/"}
    assert edge_address(environment) == EdgeAddress("http://elsewhere", "sk-dev")
    environment |= {"BATON_API_KEY": "sk-api"}
    assert edge_address(environment).key == "sk-api"
    assert edge_address(environment, "http://x", "sk-y") == EdgeAddress("http://x", "sk-y")


def test_thinking_is_shown_before_the_answer_and_is_no_part_of_it() -> None:
    def delta(**fields: str) -> str:
        return f"data: {json.dumps({'model': 'm', 'choices': [{'index': 0, 'delta': fields}]})}\n\n"

    events = (
        delta(reasoning="Hm"),
        delta(reasoning="."),
        delta(content="For"),
        delta(content="ty."),
        "data: [DONE]\n\n",
    )
    answer = Answer()
    assert text_of(client_of(stream_of(*events)), answer) == "(thinking) Hm.\n\nForty."
    assert answer.text == "Forty."


@pytest.mark.parametrize(
    "url", ["nonsense", "ftp://x", "http://", "http://[::1", "http://x:99999", "127.0.0.1:8080"]
)
def test_what_is_no_url_is_said_before_anything_is_sent(url: str, tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"is no URL of an edge \(--url, BATON_URL\)"):
        edge_address({"BATON_HOME": str(tmp_path)}, url, "sk-key")


@pytest.mark.parametrize("key", ["sk bad", "sk-ü", "sk-\n"])
def test_what_can_be_no_key_is_said_without_showing_it(key: str, tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"The API key .* has characters that no key has") as refused:
        edge_address({"BATON_HOME": str(tmp_path)}, "http://edge", key)
    assert key not in str(refused.value)


def test_a_pipe_gets_the_answer_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = client_of(stream_of(chunk("Forty"), chunk("-two."), "data: [DONE]\n\n"), times=[1.0, 1.1, 1.2])
    monkeypatch.setattr("baton_cli.commands.ask.connect", lambda *_: client)
    ask("What is six times seven?")
    said = capsys.readouterr()
    assert said.out == "Forty-two.\n"
    assert said.err.startswith("TTFT 100 ms")


def test_who_is_refused_for_his_key_hears_where_keys_come_from() -> None:
    error = {"error": {"code": "invalid_api_key", "message": "The API key is not valid."}}
    with pytest.raises(EdgeRefused, match=r"^401 invalid_api_key: .* not valid\. Give another with --key or"):
        client_of(lambda _: httpx.Response(401, json=error)).trace(RID)


@pytest.mark.parametrize("body", [{}, {"data": None}, {"object": "list", "data": "x"}])
def test_a_list_without_data_is_no_edges(body: dict[str, Any]) -> None:
    client = client_of(lambda _: httpx.Response(200, json=body))
    with pytest.raises(
        CliError, match=r"http://edge/v1/traces answered without data\. Is that Baton's edge\?"
    ):
        client.traces({}, 10)
