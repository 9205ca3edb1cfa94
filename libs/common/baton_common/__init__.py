"""The actor runtime that every Baton service stands on.

`run_service` starts a process; a `Node` is that process on the bus; an `Actor` is one bounded inbox with
one task a request; a `RequestContext` is what a handler sees of the request it holds.
"""
