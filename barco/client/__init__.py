"""The library: producers, consumers, administration. Every public name is in `barco` too."""

from barco.client.batching import Ack
from barco.client.producer import AsyncProducer, Producer
from barco.client.sender import ProducerOptions

__all__ = ["Ack", "AsyncProducer", "Producer", "ProducerOptions"]
