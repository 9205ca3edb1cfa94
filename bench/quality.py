"""What a smaller form of the weights costs in quality: perplexity, and agreement with float32, on plain text.

`python -m bench.quality [MODEL] [--forms bf16 int8 int4 kv-int8]`. The text is the reference pages that
Python carries with itself (pydoc_data), so that everybody has the same; teacher forced, in windows of 512
tokens.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

from baton_engine import EngineConfig
from baton_engine.assembly import open_parts
from baton_engine.backend import choose_backend
from baton_engine.config import QUANTIZATION_BITS
from baton_engine.forward import Batch
from baton_engine.layers.attention import KVShape, Span
from baton_engine.models import build_model, read_spec

import torch  # isort: skip  (baton_engine comes first)
from torch import Tensor

WINDOW = 512
PAGES = (
    "execmodel",
    "exceptions",
    "typesseq",
    "formatstrings",
    "import",
    "objects",
    "naming",
    "specialnames",
)
FORMS = ("bf16", "int8", "int4", "kv-int8")
BLOCK_SIZE = 16


@dataclass
class Score:
    """Sums over the tokens of all windows."""

    loss: float = 0.0
    agreed: int = 0
    divergence: float = 0.0
    count: int = 0

    def add(self, logits: Tensor, exact: Tensor, following: Tensor) -> None:
        """Rows of logits, float32's for the same places, and the tokens that really follow."""
        ours, theirs = logits.log_softmax(-1), exact.log_softmax(-1)
        self.loss -= float(ours.gather(-1, following.unsqueeze(-1)).sum())
        self.agreed += int((logits.argmax(-1) == exact.argmax(-1)).sum())
        self.divergence += float((theirs.exp() * (theirs - ours)).sum())
        self.count += len(following)

    def cells(self) -> list[str]:
        perplexity = torch.tensor(self.loss / self.count).exp().item()
        return [
            f"{perplexity:.3f}",
            f"{100 * self.agreed / self.count:.2f} %",
            f"{self.divergence / self.count:.5f}",
        ]


def forward_of(model: Path, form: str) -> Callable[[Tensor], Tensor]:
    """token ids of one window → logits of each. "float32" is torch's, the others are what the engine would
    use; "kv-int8" is bf16 with keys and values in int8."""
    quantization = form if form in QUANTIZATION_BITS else None
    dtype = torch.float32 if form == "float32" else torch.bfloat16
    kv_dtype = "int8" if form == "kv-int8" else "auto"
    config = EngineConfig(model=model, quantization=quantization, kv_dtype=kv_dtype)
    source, device = open_parts(config).weights, torch.device("cpu")
    spec = read_spec(source)
    backend = choose_backend(config, spec, dtype, device)
    bits = QUANTIZATION_BITS[quantization]
    decoder = build_model(source, dtype, device, pack=not backend.packs_weights, bits=bits)
    sizes = (spec.num_layers, spec.num_kv_heads, spec.head_dim, BLOCK_SIZE)
    shape = KVShape(*sizes, dtype, config.resolve_kv_dtype(dtype))
    num_blocks = WINDOW // BLOCK_SIZE
    forward = backend.forward(decoder, shape, num_blocks)

    def logits(token_ids: Tensor) -> Tensor:
        count = len(token_ids)
        batch = Batch(token_ids.tolist(), [Span(0, count, range(num_blocks))], range(count))
        return forward.logits(batch).clone()

    return logits


def windows(model: Path, count: int) -> Iterator[Tensor]:
    tokenizer = open_parts(EngineConfig(model=model)).tokenizer
    for page in PAGES[:count]:
        yield torch.tensor(tokenizer.encode(topics[page])[:WINDOW])


@torch.inference_mode()
def measure(model: Path, forms: list[str], count: int) -> Iterator[list[str]]:
    """A row of the table for each form."""
    texts = list(windows(model, count))
    exact_of = forward_of(model, "float32")
    exact = [exact_of(text)[:-1] for text in texts]
    for form in ["float32", *forms]:
        started = time.monotonic()
        forward, score = forward_of(model, form), Score()
        for text, rows in zip(texts, exact, strict=True):
            score.add(forward(text)[:-1], rows, text[1:])
        yield [form, *score.cells(), f"{time.monotonic() - started:.1f} s"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    home = Path.home() / ".baton" / "models"
    parser.add_argument("model", type=Path, nargs="?", default=home / "smollm2-135m")
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=FORMS)
    parser.add_argument("--pages", type=int, default=len(PAGES))
    options = parser.parse_args()
    titles = ("weights", "perplexity", "argmax as float32", "KL from float32", "load + run")
    print("| " + " | ".join(titles) + " |\n|" + "---|" * len(titles))
    for row in measure(options.model, options.forms, options.pages):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
