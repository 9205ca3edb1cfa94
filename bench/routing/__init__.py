"""Which replica: four ways to choose, on simulated replicas and on real ones."""
