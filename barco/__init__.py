"""barco: an event-streaming broker for bare-metal nodes. This package is its library."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barco.client import (
        Access,
        Ack,
        Admin,
        AsyncAdmin,
        AsyncConsumer,
        AsyncPipeline,
        AsyncProducer,
        AsyncQueue,
        AsyncReader,
        Consumer,
        ConsumerOptions,
        Event,
        Output,
        Pipeline,
        PipelineError,
        PipelineFencedError,
        PipelineOptions,
        PipelineProgress,
        Producer,
        ProducerOptions,
        Queue,
        QueueEvent,
        ReaderOptions,
        TopicSlice,
        TypedTopic,
        read,
    )

__version__ = "0.1.0"
__all__ = [
    "Access",
    "Ack",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncPipeline",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncReader",
    "Consumer",
    "ConsumerOptions",
    "Event",
    "Output",
    "Pipeline",
    "PipelineError",
    "PipelineFencedError",
    "PipelineOptions",
    "PipelineProgress",
    "Producer",
    "ProducerOptions",
    "Queue",
    "QueueEvent",
    "ReaderOptions",
    "TopicSlice",
    "TypedTopic",
    "__version__",
    "read",
]


def __getattr__(name: str) -> object:
    """Loads the client on first use: workers and the supervisor import this package too, and
    need none of it."""
    if name in __all__:
        from barco import client

        return getattr(client, name)
    raise AttributeError(f"module 'barco' has no attribute {name!r}")
