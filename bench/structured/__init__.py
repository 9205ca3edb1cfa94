"""A sample of JSON schemas of every kind, and the answers that a small model gives to them."""
