"""Output guardrails: what leaves the engine is checked and unmasked on its way to the edge."""
