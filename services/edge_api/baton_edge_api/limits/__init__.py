"""Limits and budgets: reserved on entry, settled with the real use, exact over all edges (ADR 17)."""
