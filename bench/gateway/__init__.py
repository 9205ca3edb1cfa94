"""Gateways side by side in front of the same instant upstream."""
