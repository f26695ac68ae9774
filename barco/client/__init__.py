"""The library: producers, consumers, administration. Every public name is in `barco` too.

Each is loaded when it is asked for: brokers and commands import what is below, and need no more.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barco.client.admin import Admin, AsyncAdmin
    from barco.client.base.settings import TopicSlice
    from barco.client.consuming.blocking import Consumer
    from barco.client.consuming.consumer import AsyncConsumer
    from barco.client.consuming.enrolment import ConsumerOptions
    from barco.client.outputs import Output
    from barco.client.pipeline import AsyncPipeline, Pipeline, PipelineOptions
    from barco.client.piping import PipelineError, PipelineFencedError, PipelineProgress
    from barco.client.producer import AsyncProducer, Producer
    from barco.client.queue import AsyncQueue, Queue, QueueEvent
    from barco.client.reader import AsyncReader, ReaderOptions, read
    from barco.client.sender import ProducerOptions
    from barco.client.typed import TypedTopic
    from barco.client.wire.access import Access
    from barco.client.wire.batching import Ack
    from barco.client.wire.codec import Event

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
    "read",
]

_WHERE = {
    "Access": "wire.access",
    "Ack": "wire.batching",
    "Admin": "admin",
    "AsyncAdmin": "admin",
    "AsyncConsumer": "consuming.consumer",
    "AsyncPipeline": "pipeline",
    "AsyncProducer": "producer",
    "AsyncQueue": "queue",
    "AsyncReader": "reader",
    "Consumer": "consuming.blocking",
    "ConsumerOptions": "consuming.enrolment",
    "Event": "wire.codec",
    "Output": "outputs",
    "Pipeline": "pipeline",
    "PipelineError": "piping",
    "PipelineFencedError": "piping",
    "PipelineOptions": "pipeline",
    "PipelineProgress": "piping",
    "Producer": "producer",
    "ProducerOptions": "sender",
    "Queue": "queue",
    "QueueEvent": "queue",
    "ReaderOptions": "reader",
    "TopicSlice": "base.settings",
    "TypedTopic": "typed",
    "read": "reader",
}


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(import_module(f"barco.client.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'barco.client' has no attribute {name!r}")
