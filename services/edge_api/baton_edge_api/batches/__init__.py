"""Files, and batches of requests that run when the engine has room."""
