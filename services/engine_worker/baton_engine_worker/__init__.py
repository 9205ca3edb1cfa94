"""Stop 7, the engine worker: one engine on the bus."""
