"""barco: an event-streaming broker for bare-metal nodes. This package is its library."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barco.client import (
        Ack,
        AsyncConsumer,
        AsyncProducer,
        Consumer,
        ConsumerOptions,
        Event,
        Producer,
        ProducerOptions,
    )

__version__ = "0.1.0"
__all__ = [
    "Ack",
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "ConsumerOptions",
    "Event",
    "Producer",
    "ProducerOptions",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Loads the client on first use: workers and the supervisor import this package too, and
    need none of it."""
    if name in __all__:
        from barco import client

        return getattr(client, name)
    raise AttributeError(f"module 'barco' has no attribute {name!r}")
