"""Other OpenAI-compatible servers: how they are asked, how answers are read, what failures mean."""
