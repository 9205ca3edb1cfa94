"""Attention over paged KV for a GPU: prompts through torch's fused (flash) kernels, decodes through our paged
one.

    fused   never writes the scores to memory. It takes bfloat16 and float16, no sliding window, and K and V
            in one piece: a chunk's pages are gathered first, once a layer
    paged   reads K and V in their pages (`paged_decode_triton.py`); without it they are gathered, as in the
    reference

Each is used only if a trial at the start, on this very device, gives what the reference gives. Without both
this is `TorchAttention`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import cosine_similarity, scaled_dot_product_attention

from baton_engine.layers.attention import KVShape, Span
from baton_engine.layers.attention_torch import DecodeGroup, PrefillChunk, TorchAttention

FUSED_DTYPES = frozenset({torch.bfloat16, torch.float16})
TRIAL_CHUNKS = ((0, 40), (40, 73), (73, 200))  # places [start, end) of one sequence
TRIAL_ENDS = (200, 1, 130)  # how many keys the decodes of a trial see
TRIAL_LEAST_COSINE = 0.999

PagedDecode = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, int, int | None], Tensor]
"""See `paged_decode_triton.paged_decode`."""


class GPUAttention(TorchAttention):
    """An AttentionBackend."""

    def __init__(self, shape: KVShape, num_blocks: int, device: torch.device) -> None:
        super().__init__(shape, num_blocks, device)
        self.fused = False
        self.paged: PagedDecode | None = None

    def use_what_works(self, num_heads: int) -> list[str]:
        """Turns on what passes its trial; a sentence for each that does not."""
        reasons: list[str] = []
        failing = self._try_paged(num_heads)
        if failing is not None:
            self.paged = None
            reasons.append(f"decodes gather their pages, without the paged kernel: {failing}")
        if self.shape.dtype not in FUSED_DTYPES:
            failing = f"they are not for {str(self.shape.dtype).removeprefix('torch.')}."
        else:
            failing = why_not(fused_trial(self.shape, num_heads, self.device))
        self.fused = failing is None
        if failing is not None:
            reasons.append(f"prompts go through torch's operators, not its fused kernels: {failing}")
        return reasons

    def _try_paged(self, num_heads: int) -> str | None:
        if self.shape.kept != self.shape.dtype:
            return "it reads K and V in the model's dtype only."
        try:
            self.paged = load_paged_decode()
        except ImportError as error:
            return f"{error}."
        return why_not(paged_trial(self.shape, num_heads, self.device, self.paged))

    def _alike(self, decodes: Sequence[tuple[int, Span]]) -> list[list[tuple[int, Span]]]:
        if self.paged is None:
            return super()._alike(decodes)
        return [list(decodes)] if decodes else []  # nothing is gathered, so nothing is padded

    def _decode(self, layer: int, q: Tensor, group: DecodeGroup, window: int | None) -> Tensor:
        if self.paged is None:
            return super()._decode(layer, q, group, window)
        pages = group.pages.view(q.shape[0], -1)
        keys, values = self.kv.of_layer(layer)
        return self.paged(q * self.scale, keys, values, pages, group.ends, self.kv.block_size, window)

    def _prefill(self, layer: int, q: Tensor, chunk: PrefillChunk, window: int | None) -> Tensor:
        if not self.fused or window is not None:
            return super()._prefill(layer, q, chunk, window)
        length, heads, dim = q.shape
        end = chunk.context + length
        k, v = (gathered[None, :, :end] for gathered in self.kv.gather(layer, chunk.pages))
        attended = scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            k,
            v,
            attn_mask=causal_lower_right(length, end),
            scale=self.scale,
            enable_gqa=heads != k.shape[1],
        )
        return attended[0].transpose(0, 1).reshape(length, heads * dim)


def load_paged_decode() -> PagedDecode:
    """Raises ImportError where there is no Triton, as in torch's builds for CPUs."""
    from baton_engine.layers.paged_decode_triton import paged_decode  # noqa: PLC0415

    return paged_decode


Trial = Callable[[], Iterator[tuple[Tensor, Tensor]]]
"""Pairs of (what is tried, what the reference gives)."""


def why_not(trial: Trial) -> str | None:
    """A sentence, or None where both give the same. Whatever a kernel or its compiler raises is a reason."""
    try:
        worst = [
            cosine_similarity(tried.float(), plain.float(), dim=-1).min().item() for tried, plain in trial()
        ]
    except Exception as error:  # a kernel that can't run here raises what it likes
        return f"a trial on this device failed: {type(error).__name__}: {error}"
    if not all(cosine >= TRIAL_LEAST_COSINE for cosine in worst):  # NaN is not either
        return f"the results are off on this device: cosines to the reference from {min(worst):.4f} on."
    return None


def fused_trial(shape: KVShape, num_heads: int, device: torch.device) -> Trial:
    def run() -> Iterator[tuple[Tensor, Tensor]]:
        tried, plain, blocks = _pair(shape, device)
        tried.fused = True
        for at, (start, end) in enumerate(TRIAL_CHUNKS):
            qkv = _random(end - start, num_heads, shape, device, seed=at)
            spans = [Span(start, end - start, blocks)]
            yield _attend(tried, spans, qkv), _attend(plain, spans, qkv)

    return run


def paged_trial(shape: KVShape, num_heads: int, device: torch.device, paged: PagedDecode) -> Trial:
    def run() -> Iterator[tuple[Tensor, Tensor]]:
        tried, plain, blocks = _pair(shape, device)
        tried.paged = paged
        whole = max(TRIAL_ENDS)
        for attention in (tried, plain):
            _attend(attention, [Span(0, whole, blocks)], _random(whole, num_heads, shape, device, seed=0))
        for at, ends in enumerate([TRIAL_ENDS, TRIAL_ENDS[:1]]):
            qkv = _random(len(ends), num_heads, shape, device, seed=at + 1)
            spans = [Span(end - 1, 1, blocks) for end in ends]
            yield _attend(tried, spans, qkv), _attend(plain, spans, qkv)

    return run


def _pair(shape: KVShape, device: torch.device) -> tuple[GPUAttention, TorchAttention, list[int]]:
    """One layer of each, and blocks in no order."""
    one_layer = replace(shape, num_layers=1)
    num_blocks = -(-max(TRIAL_ENDS) // shape.block_size)
    blocks = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(0)).tolist()
    tried, plain = (kind(one_layer, num_blocks, device) for kind in (GPUAttention, TorchAttention))
    assert isinstance(tried, GPUAttention)
    return tried, plain, blocks


def _random(
    num_tokens: int, num_heads: int, shape: KVShape, device: torch.device, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (
        torch.randn(num_tokens, heads, shape.head_dim, generator=generator).to(device, shape.dtype)
        for heads in (num_heads, shape.num_kv_heads, shape.num_kv_heads)
    )
    return q, k, v


def _attend(attention: TorchAttention, spans: Sequence[Span], qkv: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    return attention.attend(0, *qkv, attention.plan(spans))
