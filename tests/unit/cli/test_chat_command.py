"""The terminal chat: one conversation, answers that can be cancelled, a program that goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from baton_cli.commands.chat import Chat
from baton_cli.edge_client import EdgeAddress, EdgeClient
from baton_cli.terminal import printable

OK = b'data: {"choices": [{"delta": {"content": "fine"}}]}\n\ndata: [DONE]\n\n'


class Interrupted(httpx.SyncByteStream):
    """Ctrl-C after the first piece."""

    closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield b'data: {"choices": [{"delta": {"content": "half an ans"}}]}\n\n'
        raise KeyboardInterrupt

    def close(self) -> None:
        Interrupted.closed = True


class Talk:
    """A chat with given lines; remembers what the edge was sent."""

    def __init__(self, lines: list[str | type[BaseException]], answers: list[httpx.Response]) -> None:
        self.sent: list[dict[str, object]] = []
        self._lines = iter(lines)
        self._answers = iter(answers)
        client = EdgeClient(EdgeAddress("http://edge", "k"), httpx.MockTransport(self._handle))
        self.chat = Chat(client, "auto", "conv-1", self._read)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(json.loads(request.content))
        return next(self._answers)

    def _read(self, _: str) -> str:
        line = next(self._lines, EOFError)
        if isinstance(line, str):
            return line
        raise line


def ok() -> httpx.Response:
    return httpx.Response(200, content=OK)


def test_each_line_goes_to_the_same_conversation_alone(capsys: pytest.CaptureFixture[str]) -> None:
    talk = Talk(["hello", "", "and?", "/exit", "never"], [ok(), ok()])
    talk.chat.run()
    assert [body["conversation_id"] for body in talk.sent] == ["conv-1", "conv-1"]
    assert [body["messages"] for body in talk.sent] == [
        [{"role": "user", "content": "hello"}],
        [{"role": "user", "content": "and?"}],
    ]
    assert capsys.readouterr().out.count("fine") == 2


def test_ctrl_c_cancels_the_answer_and_not_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    talk = Talk(["one", KeyboardInterrupt, "two"], [httpx.Response(200, stream=Interrupted()), ok()])
    talk.chat.run()
    out = capsys.readouterr().out
    assert "half an ans" in out
    assert "[cancelled]" in out
    assert "fine" in out
    assert Interrupted.closed


def test_a_failed_answer_does_not_end_the_chat(capsys: pytest.CaptureFixture[str]) -> None:
    busy = httpx.Response(503, json={"error": {"message": "no seat", "code": "queue_full"}})
    talk = Talk(["one", "two"], [busy, ok()])
    talk.chat.run()
    captured = capsys.readouterr()
    assert "503 queue_full: no seat" in captured.err
    assert "fine" in captured.out


def test_new_begins_another_conversation() -> None:
    talk = Talk(["one", "/new", "two"], [ok(), ok()])
    talk.chat.run()
    first, second = (body["conversation_id"] for body in talk.sent)
    assert first == "conv-1"
    assert second != first


def test_a_model_can_not_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\r\n\tc\u202e") == "a[2Jb\n\tc"
