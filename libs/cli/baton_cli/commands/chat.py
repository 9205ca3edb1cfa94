"""`baton chat`: a conversation in the terminal. The edge keeps its history under a conversation id."""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import typer

from baton_cli.commands.ask import figures
from baton_cli.edge_client import Answer, EdgeClient, connect
from baton_cli.errors import CliError, EdgeUnreachable
from baton_cli.terminal import KeyOption, UrlOption, complaints, console, write

_HELP = "/new begins a new conversation, /exit ends. Ctrl-C cancels an answer, Ctrl-D ends."


def chat(
    model: Annotated[str, typer.Option(help="A model or an alias.")] = "auto",
    conversation: Annotated[str | None, typer.Option(help="Go on with this conversation.")] = None,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Chat in the terminal."""
    with suppress(ImportError):
        importlib.import_module("readline")  # arrow keys and history in input()
    client = connect(url, key)
    try:
        Chat(client, model, conversation or new_conversation_id(), input).run()
    finally:
        client.close()


def new_conversation_id() -> str:
    return f"conv-{secrets.token_hex(8)}"


class Chat:
    def __init__(
        self, client: EdgeClient, model: str, conversation_id: str, read_line: Callable[[str], str]
    ) -> None:
        self._client = client
        self._model = model
        self._conversation_id = conversation_id
        self._read_line = read_line

    def run(self) -> None:
        """Until /exit or the end of the input."""
        console.print(f"Conversation {self._conversation_id}. {_HELP}", style="dim")
        while (line := self._next_line()) is not None:
            if line == "/exit":
                return
            if line == "/new":
                self._conversation_id = new_conversation_id()
                console.print(f"Conversation {self._conversation_id}", style="dim")
            elif line.startswith("/"):
                console.print(_HELP, style="dim")
            elif line:
                self._answer(line)

    def _next_line(self) -> str | None:
        """None at the end of the input. Ctrl-C here only drops the line."""
        try:
            return self._read_line("\nyou> ").strip()
        except KeyboardInterrupt:
            return ""
        except EOFError:
            write("\n")
            return None

    def _answer(self, line: str) -> None:
        """A failed or cancelled answer ends here, not the program."""
        body: dict[str, Any] = {
            "model": self._model,
            "conversation_id": self._conversation_id,
            "messages": [{"role": "user", "content": line}],
        }
        answer = Answer()
        try:
            with self._client.chat(body, answer) as pieces:
                for piece in pieces:
                    write(piece)
            write("\n")
        except KeyboardInterrupt:
            write("\n[cancelled]\n")
        except EdgeUnreachable:
            raise
        except CliError as error:
            write("\n")
            complaints.print(f"baton: {error}", soft_wrap=True)
            return
        console.print(figures(answer), style="dim", soft_wrap=True)
