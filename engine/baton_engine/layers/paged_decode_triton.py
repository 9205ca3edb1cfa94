# Triton comes with torch's builds for CUDA only, and a kernel's parameters have no Python types.
# pyright: reportMissingImports=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUntypedFunctionDecorator=false, reportIndexIssue=false
"""Decode attention that reads K and V where they lie in their pages: one Triton kernel, and a merge in torch.

A program handles one request, one KV head and one part of the context (a split), with the KV head's query
heads as the rows of its products; sums are kept in float32. Import it only where Triton is; whether it is
used is decided by a trial beside the reference: `attention_gpu.paged_trial`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

KEYS = 64  # of one product
LEAST_SIDE = 16
PROGRAMS = 512  # about four for each multiprocessor of a large GPU
MOST_SPLITS = 32


def paged_decode(
    q: Tensor, k: Tensor, v: Tensor, pages: Tensor, ends: Tensor, block_size: int, window: int | None
) -> Tensor:
    """q (requests, heads, head_dim), scaled already; k, v (KV heads, slots, head_dim); pages (requests,
    width) block ids; ends (requests,): how many keys there are → (requests, heads × head_dim). Shapes alone
    decide what is launched: it can be recorded.
    """
    requests, heads, dim = q.shape
    kv_heads = k.shape[0]
    group = heads // kv_heads
    splits = _num_splits(requests * kv_heads, pages.shape[1] * block_size)
    parts = torch.empty(requests, kv_heads, splits, group, dim, dtype=torch.float32, device=q.device)
    tops, totals = torch.empty(2, requests, kv_heads, splits, group, dtype=torch.float32, device=q.device)
    q, pages = q.contiguous(), pages.contiguous()
    _attend_split[requests, kv_heads, splits](
        q, k, v, pages, ends, parts, tops, totals, pages.shape[1], k.stride(0), k.stride(1),
        group=group, dim=dim, block_size=block_size, window=window or 0, splits=splits, keys=KEYS,
        padded_rows=_padded(group), padded_dim=_padded(dim),
    )  # fmt: skip
    weights = (tops - tops.amax(2, keepdim=True)).exp()  # 0 for a split without keys
    out = (parts * weights[..., None]).sum(2) / (totals * weights).sum(2)[..., None]
    return out.to(q.dtype).view(requests, heads * dim)


def _padded(size: int) -> int:
    """A side of a product on a GPU's matrix units: a power of two, and 16 at least."""
    return max(LEAST_SIDE, 1 << (size - 1).bit_length())


def _num_splits(programs: int, longest: int) -> int:
    """So many that the GPU is busy, each with a product's keys at least."""
    return max(1, min(-(-PROGRAMS // programs), -(-longest // KEYS), MOST_SPLITS))


@triton.jit
def _attend_split(
    q, k, v, pages, ends, parts, tops, totals, width, head_stride, slot_stride,
    group: tl.constexpr, dim: tl.constexpr, block_size: tl.constexpr, window: tl.constexpr,
    splits: tl.constexpr, keys: tl.constexpr, padded_rows: tl.constexpr, padded_dim: tl.constexpr,
):  # fmt: skip
    request, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_kv_heads = tl.num_programs(1)
    end = tl.load(ends + request).to(tl.int32)
    begin = end * 0
    if window > 0:
        begin = tl.maximum(end - window, 0)
    length = tl.cdiv(tl.cdiv(end - begin, keys), splits) * keys
    first = begin + split * length
    last = tl.minimum(first + length, end)

    rows, dims = tl.arange(0, padded_rows), tl.arange(0, padded_dim)
    row_is, dim_is = rows < group, dims < dim
    query = (request * num_kv_heads + kv_head) * group + rows
    q_tile = tl.load(
        q + query[:, None] * dim + dims[None, :], mask=row_is[:, None] & dim_is[None, :], other=0.0
    )
    top = tl.full([padded_rows], float("-inf"), tl.float32)
    total = tl.zeros([padded_rows], tl.float32)
    out = tl.zeros([padded_rows, padded_dim], tl.float32)
    for at in range(first, last, keys):
        places = at + tl.arange(0, keys)
        seen = places < last
        page = tl.load(pages + request * width + places // block_size, mask=seen, other=0)
        where = kv_head.to(tl.int64) * head_stride + (page * block_size + places % block_size) * slot_stride
        k_tile = tl.load(k + where[None, :] + dims[:, None], mask=seen[None, :] & dim_is[:, None], other=0.0)
        scores = tl.dot(q_tile, k_tile, input_precision="ieee")
        scores = tl.where(seen[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        fade = tl.exp(top - higher)
        weights = tl.exp(scores - higher[:, None])
        total = total * fade + tl.sum(weights, 1)
        v_tile = tl.load(v + where[:, None] + dims[None, :], mask=seen[:, None] & dim_is[None, :], other=0.0)
        out = out * fade[:, None] + tl.dot(weights.to(v_tile.dtype), v_tile, input_precision="ieee")
        top = higher
    part = ((request * num_kv_heads + kv_head) * splits + split) * group + rows
    tl.store(parts + part[:, None] * dim + dims[None, :], out, mask=row_is[:, None] & dim_is[None, :])
    tl.store(tops + part, top, mask=row_is)
    tl.store(totals + part, total, mask=row_is)
