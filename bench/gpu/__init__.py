"""The torch path of the engine on one GPU: parity, then a table. See `bench/gpu.sh`."""
