"""Baton's engine beside its peers: same machine, same run, same client, same model."""
