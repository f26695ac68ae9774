"""barco: an event-streaming broker for bare-metal nodes. This package is its library."""

__version__ = "0.1.0"
