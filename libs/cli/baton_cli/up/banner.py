"""What `baton up` prints when a question would be answered: one URL, the key, a curl line that works."""

from __future__ import annotations

import json
import shlex

from baton_cli.up.ready import Readiness
from baton_common.catalog import Catalog

QUESTION = "Why is my API returning a 503?"


def banner(url: str, key: str, seconds: float, readiness: Readiness, model: str | None = "auto") -> list[str]:
    """`model`: one that answers; None: there is none yet."""
    state = (
        f"Baton is ready ({seconds:.1f} s)" if readiness.ready else f"Baton runs in part: {readiness.detail}"
    )
    first_step = (
        f"  Try  {curl_line(url, key, model)}"
        if model
        else "  Next  name the models of other servers in catalog.toml, as docs/operations/gateway.md shows"
    )
    return [
        "",
        state,
        "",
        f"  URL  {url}",
        f"  Key  {key}",
        first_step,
        "",
    ]


def model_without_replicas(catalog: Catalog) -> str | None:
    """The first one that another server answers, for a plain gateway."""
    return next((name for name, route in catalog.routes.items() if not route.needs_replica), None)


def curl_line(url: str, key: str, model: str = "auto") -> str:
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": QUESTION}]}
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
