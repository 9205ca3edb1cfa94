"""Recording of GPU work as CUDA graphs. Thin: what is recorded is somebody else's."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

RUNS_BEFORE = 2  # libraries set themselves up in their first runs, which a graph must not contain


class CudaGraphRecorder:
    """All graphs share one memory pool: only one of them runs at a time, and each result is used before the
    next.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        with torch.cuda.device(self.device):
            self._run_beside(compute)
            graph = torch.cuda.CUDAGraph()
            # thread_local: what other threads of the process do on the GPU meanwhile is no error.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                result = compute()

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay

    def _run_beside(self, compute: Callable[[], Tensor]) -> None:
        """On a stream of its own, as torch asks for before a capture."""
        current, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(RUNS_BEFORE):
                compute()
        current.wait_stream(side)
        torch.cuda.synchronize(self.device)
