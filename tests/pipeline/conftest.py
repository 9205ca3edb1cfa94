"""Fixtures of the pipeline tests."""

from tests.support.relay_fixtures import relay_nats, stage

__all__ = ["relay_nats", "stage"]
