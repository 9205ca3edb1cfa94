"""Logs: one line an event, with the request id of the request being handled. Never prompt text."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from typing import Literal

request_id_var: ContextVar[str] = ContextVar("request_id", default="")


class _Json(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "ts": round(record.created, 6),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := request_id_var.get():
            event["request_id"] = request_id
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, ensure_ascii=False)


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        request_id = request_id_var.get()
        prefix = f"{record.levelname.lower():7} "
        line = prefix + (f"[{request_id[:8]}] " if request_id else "") + record.getMessage()
        return line + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


def configure_logging(service: str, style: Literal["plain", "json"], level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(service) if style == "json" else _Plain())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("httpx", "httpcore", "presidio-analyzer", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
