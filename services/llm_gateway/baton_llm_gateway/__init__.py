"""Stop 5, the LLM gateway: which model answers, and who owns the request until its end frame."""
