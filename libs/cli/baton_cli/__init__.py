"""The `baton` command: starts the whole system, asks it, shows its traces, fetches its models."""
