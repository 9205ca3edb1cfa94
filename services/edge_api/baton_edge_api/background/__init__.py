"""Responses that are made while nobody waits for them (ADR 26).

`records` says what is known of one, `store` keeps it for whichever edge makes it, `run` makes one, `runner`
those of this edge and those whose edge is gone, `desk` is what clients ask.
"""
