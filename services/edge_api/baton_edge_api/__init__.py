"""Stops 1, 2 and 9: HTTP in, server-sent events out; keys, validation, limits, cancel on disconnect."""
