"""Stop 10: the ledger and the conversations."""
