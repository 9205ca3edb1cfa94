"""Whatever happens in whatever order, blocks are conserved and every request comes to its end."""

from __future__ import annotations

from tests.support.block_machine import SETTINGS, Blocks

TestBlocks = Blocks.TestCase
TestBlocks.settings = SETTINGS
