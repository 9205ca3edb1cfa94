"""Traces of the relay, and the pages that show them."""
