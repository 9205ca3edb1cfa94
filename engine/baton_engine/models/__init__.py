"""Model families: each reads its config.json into a DecoderSpec; one decoder runs them all."""

from baton_engine.models.registry import build_model, read_spec, supported_model_types

__all__ = ["build_model", "read_spec", "supported_model_types"]
