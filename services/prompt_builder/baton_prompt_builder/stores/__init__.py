"""Where the chunks of documents live: one interface, Qdrant's core in this process or a Qdrant server."""
