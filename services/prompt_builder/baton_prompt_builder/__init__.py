"""History, retrieved documents and the question become the full prompt. Owns the document store."""
