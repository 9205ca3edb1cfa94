"""`baton ask`: one question, its answer as it streams, and the figures by which it is judged."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from baton_cli.edge_client import Answer, connect
from baton_cli.terminal import KeyOption, UrlOption, complaints, console, write

_INTERRUPTED = 130
"""What a shell reports for a program that Ctrl-C ended."""


def ask(
    question: Annotated[str, typer.Argument(help="What you want to know.")],
    model: Annotated[str, typer.Option(help="A model or an alias.")] = "auto",
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer, tokens.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=2, help="0: the likeliest token.")] = None,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Ask one question; the answer streams. Ctrl-C cancels it."""
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": question}]}
    body |= {} if max_tokens is None else {"max_tokens": max_tokens}
    body |= {} if temperature is None else {"temperature": temperature}
    client = connect(url, key)
    answer = Answer()
    try:
        with client.chat(body, answer) as pieces:
            for piece in pieces:
                write(piece)
    except KeyboardInterrupt:
        write("\n")
        _tell(f"cancelled · {figures(answer)}")
        raise typer.Exit(_INTERRUPTED) from None
    finally:
        client.close()
    write("\n\n" if console.is_terminal else "\n")
    _tell(figures(answer))


def _tell(line: str) -> None:
    """Beside the answer: a pipe or a file gets nothing but that."""
    beside = console if console.is_terminal else complaints
    beside.print(line, style="dim", soft_wrap=True)


def figures(answer: Answer) -> str:
    """TTFT, TPOT, tokens, model, finish reason, request id: those that are known."""
    per_token = answer.seconds_per_token
    parts = [
        f"TTFT {1000 * answer.first_token_seconds:.0f} ms" if answer.first_token_seconds is not None else "",
        f"TPOT {1000 * per_token:.1f} ms" if per_token is not None else "",
        f"{answer.num_tokens} tokens",
        answer.model,
        f"finish {answer.finish_reason}" if answer.finish_reason else "",
        f"request {answer.request_id}" if answer.request_id else "",
    ]
    return " · ".join(part for part in parts if part)
