"""All that Baton's services say to each other, and nothing else.

Pure data: pydantic models, subject names, error codes. No I/O, no NATS client, no behaviour
beyond validation. A service written in another language needs only the documents generated
from this package (`schemas/`, `asyncapi.json`).
"""

CONTRACT_VERSION = "1.1"
"""Major.minor. A receiver accepts any minor of its own major and refuses another major."""

__all__ = ["CONTRACT_VERSION"]
