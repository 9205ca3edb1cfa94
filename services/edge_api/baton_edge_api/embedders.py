"""Which embedding model there is, as the embedders' leases tell.

Owns the model's names and what was last known of it. Asks nobody: that is the endpoint's.
"""

from __future__ import annotations

from collections.abc import Callable

from baton_common.errors import RequestFailed
from baton_common.leases import LeaseBoard
from baton_contracts.errors import ErrorBody
from baton_contracts.heartbeats import EmbeddingModel
from baton_edge_api.replicas import ServedModel


class EmbedderBoard:
    def __init__(self, leases: LeaseBoard, aliases: tuple[str, ...], wall: Callable[[], float]) -> None:
        self._leases = leases
        self._aliases = aliases
        self._started = int(wall())
        self._last: EmbeddingModel | None = None

    def now(self) -> EmbeddingModel | None:
        """The model of an embedder that takes questions. All embedders of one relay serve the same."""
        found = next((lease.embeds for lease in self._leases.ready("embedder") if lease.embeds), None)
        self._last = found or self._last
        return found

    @property
    def num_questions(self) -> int:
        """That the embedders hold or keep waiting."""
        return sum(lease.mailbox_depth for lease in self._leases.ready("embedder"))

    def named(self, name: str) -> EmbeddingModel:
        """The model of that name. Raises RequestFailed: there is none of it, or nobody is there who knows."""
        model = self.now()
        known = model or self._last
        if known and name not in (known.name, *self._aliases):
            text = f"There is no embedding model of this name. {known.name} is served."
            raise RequestFailed.because("model_not_found", text, param="model")
        if model is None:
            text = "No instance of embedder is running, so nothing can be embedded."
            error = ErrorBody(code="no_responder", message=text, stop="embedder", retry_after_seconds=1)
            raise RequestFailed(error)
        return model

    def models(self) -> list[ServedModel]:
        model = self.now()
        if model is None:
            return []
        names = (model.name, *self._aliases)
        return [ServedModel(name, self._started, model.max_tokens, task="embed") for name in names]
