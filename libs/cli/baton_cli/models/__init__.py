"""Fetching models and knowing which are there."""
