"""The library: producers, consumers, administration. Every public name is in `barco` too."""

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
    "read",
]
