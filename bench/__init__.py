"""Benchmarks: each is a command that prints a table, and none is a test. Results are kept as data."""
