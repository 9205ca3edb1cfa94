"""What a step must read and compute at least, for a model small enough to count by hand."""

from __future__ import annotations

import pytest

from baton_engine.models.registry import read_spec
from bench.roofline import CONTEXT, Limits, Part, batch_of, parts_of
from tests.support.tiny_model import TinyCheckpoint

# Two layers of 32 × (2 × 32 + 2 × 16 + 3 × 48) = 7,680 parameters; a head of 32 × 264 = 8,448.
LAYERS, HEAD = 2 * 7_680, 8_448


def test_a_decode_reads_each_weight_once_and_its_own_context() -> None:
    matrices, attention = parts_of(read_spec(TinyCheckpoint()), num_decodes=3, num_prompt=0)
    assert matrices == Part(2 * (LAYERS + HEAD), 2 * 3 * (LAYERS + HEAD))
    seen = 3 * (CONTEXT + 1)
    assert attention == Part(4 * 2 * 16 * seen, 4 * 2 * 32 * seen)


def test_a_prompt_samples_once_and_each_token_sees_those_before_it() -> None:
    matrices, attention = parts_of(read_spec(TinyCheckpoint()), num_decodes=0, num_prompt=4)
    assert matrices.operations == 2 * (4 * LAYERS + HEAD)
    assert attention == Part(4 * 2 * 16 * 4, 4 * 2 * 32 * (1 + 2 + 3 + 4))


def test_the_roof_is_the_slower_of_reading_and_computing() -> None:
    limits = Limits(read_bytes_per_second=1e9, operations_per_second=1e12)
    assert Part(5e6, 1e9).roof_ms(limits) == pytest.approx(5.0)
    assert Part(5e6, 9e9).roof_ms(limits) == pytest.approx(9.0)


def test_the_batch_has_a_span_and_a_row_for_each_answer() -> None:
    batch = batch_of(2, 20)
    assert [(span.start, span.length) for span in batch.spans] == [(CONTEXT, 1), (CONTEXT, 1), (0, 20)]
    assert list(batch.sample_rows) == [0, 1, 21]
    blocks = [block for span in batch.spans for block in span.block_ids]
    assert len(set(blocks)) == len(blocks) == 2 * 37 + 2
