"""Fixtures of the regression tests."""

from tests.support.relay_fixtures import memory_stage, relay_nats, stage

__all__ = ["memory_stage", "relay_nats", "stage"]
