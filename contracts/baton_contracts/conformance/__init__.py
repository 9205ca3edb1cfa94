"""The conformance suite: drives one running service over NATS and says whether a replacement fits.

The suite plays the neighbours. A check is a coroutine that returns when the service did right and raises
`Misfit` with a sentence when it did not. It needs nothing of Baton but this package and nats-py.
"""
