"""What the edge does when the other side is slow, gone, wrong or hostile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from typing import Any

import httpx
import pytest

from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Error, encode_frame
from baton_contracts.heartbeats import Lease
from baton_contracts.records import ConversationRecord
from baton_edge_api import sse
from tests.support.edge_process import KEY, QUESTION, RunningEdge, Turn, instance_of, running_edge

CHAT = "/v1/chat/completions"
STREAM = QUESTION | {"stream": True}


def http(edge: RunningEdge) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=edge.url, headers=edge.headers, timeout=20)


def error_of(response: httpx.Response) -> dict[str, Any]:
    body = response.json()["error"]
    assert set(body) == {"message", "type", "param", "code"}
    assert len(response.headers["x-request-id"]) == 32
    return body


async def wait_forever(turn: Turn) -> None:
    await turn.cancelled.wait()


async def begin_and_wait(turn: Turn) -> None:
    await turn.prologue()
    await turn.data("Once upon")
    await turn.cancelled.wait()
    await turn.end("cancelled", completion_tokens=2)


async def lose(edge: RunningEdge, instance: str, service: str = "llm_gateway") -> None:
    lease = Lease(service=service, instance=instance, state="gone")  # type: ignore[arg-type]
    await edge.relay.bus.publish(subjects.lease(instance), lease.encode())


# The client leaves


@pytest.mark.parametrize("body", [QUESTION, STREAM], ids=["whole", "stream"])
async def test_a_client_that_leaves_before_the_first_token_cancels(
    nats_url: str, body: dict[str, Any]
) -> None:
    async with running_edge(nats_url, wait_forever) as edge:
        _, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(raw_request(body))
        await edge.watches.begun(edge.relay.instance)  # it is handed on
        writer.close()
        cancel = await asyncio.wait_for(edge.relay.cancels.get(), 20)
        assert cancel.reason == "client_disconnected"
        assert cancel.request_id == edge.relay.turns[0].request_id
        assert cancel.attempt is None
        spans = await edge.relay.spans()
        waited = next(span for span in spans if span["name"] == "wait")
        assert (waited["stop"], waited["status"]) == (9, "cancelled")
        assert waited["attributes"]["blocks_freed"] == 7


async def test_a_client_that_leaves_in_the_stream_cancels_and_the_half_answer_is_kept(nats_url: str) -> None:
    async with running_edge(nats_url, begin_and_wait) as edge:
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(raw_request(STREAM | {"conversation_id": "c1"}))
        await reader.readuntil(b"Once upon")
        writer.close()
        cancel = await asyncio.wait_for(edge.relay.cancels.get(), 20)
        assert cancel.reason == "client_disconnected"
        spans = await edge.relay.spans()
        stream = next(span for span in spans if span["name"] == "stream")
        assert stream["status"] == "cancelled"
        assert stream["attributes"]["blocks_freed"] == 7
        assert stream["attributes"]["chunks"] == 1
        assert stream["attributes"]["completion_tokens"] == 2
        assert stream["attributes"]["finish_reason"] == "cancelled"
        record = ConversationRecord.decode(await edge.relay.record("conversation"))
        assert (record.answer, record.cut_short, record.conversation_id) == ("Once upon", True, "c1")


async def test_a_cancel_that_nobody_answers_is_said_again(nats_url: str) -> None:
    async def deaf(turn: Turn) -> None:
        await turn.prologue()
        await turn.data("Once upon")

    async with running_edge(nats_url, deaf) as edge:
        edge.relay.ack_cancels = False
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(raw_request(STREAM))
        await reader.readuntil(b"Once upon")
        writer.close()
        for _ in range(3):
            await asyncio.wait_for(edge.relay.cancels.get(), 20)
        spans = await edge.relay.spans()
        assert edge.relay.cancels.empty()
        assert "blocks_freed" not in next(s for s in spans if s["name"] == "stream")["attributes"]


async def test_clients_that_leave_at_any_moment_leave_nothing_behind(nats_url: str) -> None:
    async def slow_words(turn: Turn) -> None:
        await turn.held("llm_gateway", turn.relay.instance)
        await turn.prologue()
        for number in range(50):
            await turn.data(f"{number} ")
            await asyncio.sleep(0)
        await turn.end()

    async def leave(edge: RunningEdge, num_bytes: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(raw_request(STREAM if num_bytes % 2 else QUESTION))
        if num_bytes:
            await reader.read(num_bytes)
        writer.close()

    async with running_edge(nats_url, slow_words) as edge:
        await asyncio.gather(*(leave(edge, number * 97) for number in range(100)))
        await edge.relay.idle()
        await edge.finished()
        holder = edge.node.leases._peers[edge.relay.instance]
        assert len(holder.watchers) <= 1, "for the books of all; each request's own watch has ended"
        async with http(edge) as client:
            assert (await client.post(CHAT, json=QUESTION)).status_code == 200
            await edge.finished()
            assert "baton:requests_in_flight 0.0" in (await client.get("/metrics")).text


# A stop is missing, or dies


async def test_a_missing_stop_is_named_within_100_ms(nats_url: str) -> None:
    async with running_edge(nats_url) as edge, http(edge) as client:
        await client.get("/healthz")
        await edge.relay.unsubscribe_prompt()
        seconds: list[float] = []
        for _ in range(5):  # the best counts: the machine may be busy with other tests
            began = time.perf_counter()
            response = await client.post(CHAT, json=QUESTION)
            seconds.append(time.perf_counter() - began)
    assert response.status_code == 503
    assert response.headers["x-baton-stop"] == "prompt_builder"
    assert response.headers["retry-after"] == "1"
    error = error_of(response)
    assert error["code"] == "no_responder"
    assert "prompt_builder" in error["message"]
    assert min(seconds) < 0.1


async def test_a_lost_holder_before_the_answer_is_502_and_names_the_stop(nats_url: str) -> None:
    async def hand_to_gateway(turn: Turn) -> None:
        await turn.held("input_guardrails", "input_guardrails-1")
        await turn.held("llm_gateway", "llm_gateway-1")
        await turn.held("prompt_builder", "prompt_builder-late")
        await turn.cancelled.wait()

    async with running_edge(nats_url, hand_to_gateway) as edge, http(edge) as client:
        asking = asyncio.create_task(client.post(CHAT, json=QUESTION))
        await edge.watches.begun("llm_gateway-1")
        await lose(edge, "input_guardrails-1", "input_guardrails")
        await lose(edge, "llm_gateway-1")
        response = await asking
        assert response.status_code == 502
        assert error_of(response)["code"] == "stop_lost"
        assert response.headers["x-baton-stop"] == "llm_gateway"
        assert (await edge.relay.cancels.get()).reason == "lease_lost"


async def test_a_lost_guard_in_the_stream_is_an_error_event_without_done(nats_url: str) -> None:
    guard = instance_of("output_guardrails")

    async def begin(turn: Turn) -> None:
        await turn.prologue(guard=guard)
        await turn.data("Once")
        await turn.cancelled.wait()

    async with running_edge(nats_url, begin) as edge, http(edge) as client:
        async with client.stream("POST", CHAT, json=STREAM) as response:
            lines = response.aiter_lines()
            while "Once" not in await anext(lines):
                pass
            await lose(edge, guard, "output_guardrails")
            rest = [line async for line in lines if line]
        assert response.status_code == 200
        assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "stop_lost"
        assert "output_guardrails" in rest[-1]
        assert not any("[DONE]" in line or '"stop"' in line for line in rest)


async def test_silence_of_the_relay_is_504_and_cancels(nats_url: str) -> None:
    async with running_edge(nats_url, wait_forever, idle_timeout=0.1) as edge, http(edge) as client:
        response = await client.post(CHAT, json=QUESTION)
        assert (response.status_code, error_of(response)["code"]) == (504, "idle_timeout")
        assert (await asyncio.wait_for(edge.relay.cancels.get(), 20)).reason == "deadline"


async def test_the_deadline_is_504_and_cancels(nats_url: str) -> None:
    async with running_edge(nats_url, wait_forever, request_timeout=0.2) as edge, http(edge) as client:
        response = await client.post(CHAT, json=QUESTION)
        assert (response.status_code, error_of(response)["code"]) == (504, "deadline_exceeded")
        envelope = edge.relay.turns[0].handoff.envelope
        assert envelope.deadline - envelope.sent_at == pytest.approx(0.2, abs=0.05)
        assert (await asyncio.wait_for(edge.relay.cancels.get(), 20)).reason == "deadline"


async def test_a_prompt_builder_that_never_acknowledges_is_503_and_cancelled(nats_url: str) -> None:
    async with running_edge(nats_url) as edge, http(edge) as client:
        await edge.relay.unsubscribe_prompt()
        await edge.relay.bus.subscribe(subjects.PROMPT_ALL, lambda _: None, queue="prompt_builder")
        response = await client.post(CHAT, json=QUESTION)
        assert (response.status_code, error_of(response)["code"]) == (503, "stop_unresponsive")
        assert response.headers["x-baton-stop"] == "prompt_builder"
        assert (await asyncio.wait_for(edge.relay.cancels.get(), 20)).reason == "lease_lost"


@pytest.mark.parametrize(
    ("teller", "cancels"),
    [("llm_gateway", ["lease_lost"]), ("output_guardrails", [])],
    ids=["another", "itself"],
)
async def test_a_later_stop_that_never_acknowledged_is_cancelled_too(
    nats_url: str, teller: str, cancels: list[str]
) -> None:
    async def frozen_guard(turn: Turn) -> None:
        text = "output_guardrails is there but did not take the request within 2.0 s."
        error = ErrorBody(code="stop_unresponsive", message=text, stop="output_guardrails")
        frame = Error(request_id=turn.request_id, sender=instance_of(teller), error=error)
        await turn.relay.bus.publish(turn.stream.subject, encode_frame(frame))

    async with running_edge(nats_url, frozen_guard) as edge, http(edge) as client:
        response = await client.post(CHAT, json=QUESTION)
        assert (response.status_code, error_of(response)["code"]) == (503, "stop_unresponsive")
        await edge.relay.spans()  # sent once all is over
        heard = [edge.relay.cancels.get_nowait().reason for _ in range(edge.relay.cancels.qsize())]
        assert heard == cancels


async def test_an_answer_that_others_cancelled_is_an_error(nats_url: str) -> None:
    async def cancelled(turn: Turn) -> None:
        await turn.prologue()
        await turn.end("cancelled")

    async with running_edge(nats_url, cancelled) as edge, http(edge) as client:
        response = await client.post(CHAT, json=QUESTION)
        assert (response.status_code, error_of(response)["code"]) == (499, "client_closed_request")
        assert edge.relay.cancels.empty()


async def test_a_gap_is_repaired_from_the_senders_ring(nats_url: str) -> None:
    async def skip_one(turn: Turn) -> None:
        await turn.prologue()
        publish, turn.relay.bus.publish = turn.relay.bus.publish, drop  # type: ignore[method-assign]
        await turn.data("lost ")
        turn.relay.bus.publish = publish  # type: ignore[method-assign]
        await turn.data("found")
        await turn.end()

    async def drop(*_: object, **__: object) -> None:
        return

    async with running_edge(nats_url, skip_one) as edge, http(edge) as client:
        response = await client.post(CHAT, json=QUESTION)
        assert response.json()["choices"][0]["message"]["content"] == "lost found"


# Bodies


async def test_a_declared_body_over_the_limit_is_413(nats_url: str) -> None:
    async with running_edge(nats_url, max_body_bytes=2048) as edge, http(edge) as client:
        body = json.dumps(QUESTION | {"user": "x" * 3000}).encode()
        response = await client.post(CHAT, content=body)
        assert (response.status_code, error_of(response)["code"]) == (413, "request_too_large")
        assert edge.relay.turns == []
        assert (await client.post(CHAT, json=QUESTION)).status_code == 200


async def test_an_undeclared_body_over_the_limit_is_413(nats_url: str) -> None:
    async def pieces() -> Any:
        for _ in range(10):
            yield b"x" * 1000

    async with running_edge(nats_url, max_body_bytes=2048) as edge, http(edge) as client:
        response = await client.post(CHAT, content=pieces())
        assert (response.status_code, error_of(response)["code"]) == (413, "request_too_large")
        assert response.headers["connection"] == "close"


async def test_text_over_what_the_bus_carries_is_413(nats_url: str) -> None:
    async with running_edge(nats_url, max_handoff_bytes=2000) as edge, http(edge) as client:
        response = await client.post(
            CHAT, json=QUESTION | {"messages": [{"role": "user", "content": "y" * 3000}]}
        )
        assert (response.status_code, error_of(response)["param"]) == (413, "messages")
        assert edge.relay.turns == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b"[" * 100_000, b'{"a": NaN}', b'{"a":1,"a":2}', b'{"x": "\\ud800"}'],
    ids=repr,
)
async def test_broken_json_is_400(nats_url: str, body: bytes) -> None:
    async with running_edge(nats_url) as edge, http(edge) as client:
        response = await client.post(CHAT, content=body, headers={"content-type": "text/plain"})
        assert (response.status_code, error_of(response)["code"]) == (400, "invalid_json")


async def test_a_body_that_stops_arriving_is_refused(nats_url: str) -> None:
    async with running_edge(nats_url, body_timeout=0.15) as edge:
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(head(f"content-length: 100\r\nauthorization: Bearer {KEY}") + b'{"model"')
        answer = await asyncio.wait_for(reader.read(), 20)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"did not arrive within" in answer
        assert edge.node.num_held == 0
        writer.close()


async def test_headers_that_stop_arriving_end_the_connection(nats_url: str) -> None:
    async with running_edge(nats_url, header_timeout=0.1) as edge:
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-a: ")
        answer = await asyncio.wait_for(reader.read(), 20)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b'"code":"invalid_request"' in answer
        writer.close()


async def test_endless_headers_end_the_connection(nats_url: str) -> None:
    async with running_edge(nats_url) as edge:
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(b"GET /healthz HTTP/1.1\r\n" + b"x-a: " + b"y" * 200_000)
        with contextlib.suppress(ConnectionResetError):  # what was still on its way makes the close a reset
            assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 400 ")
        writer.close()


async def test_what_is_not_http_gets_the_error_object(nats_url: str) -> None:
    async with running_edge(nats_url) as edge:
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(b"\x16\x03\x01\x02\x00\x01\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 20)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"x-request-id: " in answer
        assert set(json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]) == {
            "message",
            "type",
            "param",
            "code",
        }
        writer.close()


# A client that does not read


async def test_a_client_that_takes_nothing_is_cut_off(nats_url: str) -> None:
    async def flood(turn: Turn) -> None:
        await turn.prologue()
        for _ in range(150):  # more than the sockets' buffers hold
            await turn.data("x" * 100_000)
        await turn.cancelled.wait()

    async with running_edge(nats_url, flood, write_timeout=0.2) as edge:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", edge.port))
        await loop.sock_sendall(sock, raw_request(STREAM))
        cancel = await asyncio.wait_for(edge.relay.cancels.get(), 20)
        assert cancel.reason == "slow_consumer"
        await edge.finished()
        sock.close()


# Load, ids, shutting down


async def test_more_than_fit_are_refused_with_retry_after(nats_url: str) -> None:
    async with running_edge(nats_url, wait_forever, max_in_flight=1) as edge, http(edge) as client:
        first = asyncio.create_task(client.post(CHAT, json=QUESTION))
        await edge.relay.took()
        response = await client.post(CHAT, json=QUESTION)
        assert (response.status_code, error_of(response)["code"]) == (503, "stop_busy")
        assert int(response.headers["retry-after"]) >= 1
        first.cancel()


async def test_an_id_under_way_is_409_and_free_afterwards(nats_url: str) -> None:
    release = asyncio.Event()

    async def wait(turn: Turn) -> None:
        await release.wait()
        await turn.prologue()
        await turn.end()

    mine = {"x-request-id": "0AF7651916CD43DD8448EB211C80319C"}
    async with running_edge(nats_url, wait) as edge, http(edge) as client:
        first = asyncio.create_task(client.post(CHAT, json=QUESTION, headers=mine))
        await edge.relay.took()
        response = await client.post(CHAT, json=QUESTION, headers=mine)
        assert (response.status_code, error_of(response)["code"]) == (409, "conflict")
        release.set()
        assert (await first).headers["x-request-id"] == mine["x-request-id"].lower()
        again = await client.post(CHAT, json=QUESTION, headers=mine)
        assert again.status_code == 200
        runs = {turn.handoff.envelope.run_id for turn in edge.relay.turns}
        assert len(runs) == 2


async def test_a_trace_id_is_the_request_id_unless_it_is_under_way(nats_url: str) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    header = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    async with running_edge(nats_url, wait_forever) as edge, http(edge) as client:
        asking = [asyncio.create_task(client.post(CHAT, json=QUESTION, headers=header)) for _ in range(2)]
        await edge.relay.took(2)
        ids = [turn.request_id for turn in edge.relay.turns]
        assert ids.count(trace) == 1
        for task in asking:
            task.cancel()


async def test_draining_finishes_open_streams_and_takes_no_new_ones(nats_url: str) -> None:
    release = asyncio.Event()

    async def slow(turn: Turn) -> None:
        await turn.prologue()
        await turn.data("Once ")
        await release.wait()
        await turn.data("more")
        await turn.end()

    async with running_edge(nats_url, slow) as edge, http(edge) as client:
        async with client.stream("POST", CHAT, json=STREAM) as response:
            lines = response.aiter_lines()
            while "Once" not in await anext(lines):
                pass
            draining = asyncio.create_task(edge.node.drain(10))
            await asyncio.sleep(0)
            assert edge.node.state == "draining"
            refused = await client.post(CHAT, json=QUESTION)
            assert (refused.status_code, error_of(refused)["code"]) == (503, "shutting_down")
            ready = await client.get("/readyz")
            assert ready.status_code == 503
            assert "edge_api (draining)" in ready.json()["missing"]
            release.set()
            rest = [line async for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        await draining


async def test_what_outlasts_the_drain_is_ended_with_an_error_event(nats_url: str) -> None:
    heard: list[str] = []

    async def listen(edge: RunningEdge, begun: asyncio.Event) -> None:
        async with http(edge) as client, client.stream("POST", CHAT, json=STREAM) as response:
            async for line in response.aiter_lines():
                heard.append(line)
                if "Once" in line:
                    begun.set()

    async with running_edge(nats_url, begin_and_wait, drain_for=0.05) as edge:
        begun = asyncio.Event()
        listening = asyncio.create_task(listen(edge, begun))
        await begun.wait()
        edge.relay.hold_scripts = True
    await listening
    last = [line for line in heard if line][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert edge.relay.cancels.get_nowait().reason == "lease_lost"


# Tools of this file


def head(lines: str) -> bytes:
    return f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n{lines}\r\n\r\n".encode()


def raw_request(body: dict[str, Any]) -> bytes:
    payload = json.dumps(body).encode()
    return head(f"authorization: Bearer {KEY}\r\ncontent-length: {len(payload)}") + payload


async def test_a_fault_of_the_edge_itself_ends_the_work_for_it(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(sse.ChunkWriter, "data", broken)
    async with running_edge(nats_url, begin_and_wait) as edge, http(edge) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post(CHAT, json=STREAM)
        async with asyncio.timeout(20):
            await edge.relay.turns[0].cancelled.wait()
        await edge.finished()
