"""What `baton up` prints when a question would be answered: one URL, the key, a curl line that works."""

from __future__ import annotations

import json
import shlex

from baton_cli.up.ready import Readiness

QUESTION = "Why is my API returning a 503?"


def banner(url: str, key: str, seconds: float, readiness: Readiness) -> list[str]:
    state = (
        f"Baton is ready ({seconds:.1f} s)" if readiness.ready else f"Baton runs in part: {readiness.detail}"
    )
    return [
        "",
        state,
        "",
        f"  URL  {url}",
        f"  Key  {key}",
        f"  Try  {curl_line(url, key)}",
        "",
    ]


def curl_line(url: str, key: str) -> str:
    body = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": QUESTION}]}
    parts = [
        "curl -N",
        shlex.quote(f"{url}/v1/chat/completions"),
        "-H",
        shlex.quote(f"Authorization: Bearer {key}"),
        "-H 'Content-Type: application/json' -d",
        shlex.quote(json.dumps(body)),
    ]
    insecure = ["-k"] if url.startswith("https:") else []
    return " ".join([parts[0], *insecure, *parts[1:]])
