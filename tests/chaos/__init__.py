"""Many requests, clients that leave, processes that are killed: `python -m tests.chaos --requests N`."""
