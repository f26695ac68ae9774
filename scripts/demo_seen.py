"""What the demo leaves for whoever looks: a lag, a dead letter, a topic that waits for events."""

import json

import barco
from barco.errors import NotReadyError

BEHIND = "behind"
"""A group that reads a part of the flights, and no more."""

BOARDING, GATES, GREETINGS = "boarding", "gates", "greetings"
"""A topic of a queue, the queue, and a topic for whoever looks."""

WHY = "no aircraft is known for this flight"
QUIET_S = 1.0


def leave(endpoint: str, topic: str) -> None:
    """What the console has pages for: a group that is behind, a queue with a dead letter, and a
    topic that waits for events."""
    with barco.Consumer(topic, group=BEHIND, endpoint=endpoint, start="earliest") as consumer:
        consumer.poll(QUIET_S)
        consumer.commit()
    with barco.Producer(endpoint) as producer:
        for aircraft, flight in (("N14228", 1545), ("N24211", 1714), (None, 1124)):
            call = {"flight": flight, "aircraft": aircraft}
            producer.send(BOARDING, json.dumps(call).encode(), str(flight).encode()).result()
        producer.send(GREETINGS, b'{"hello":"who looks"}', b"demo").result()
    with barco.Queue(BOARDING, GATES, endpoint) as queue:
        queue.make(max_deliveries=1)
        left = 3
        while jobs := queue.lease(left, wait_s=QUIET_S):
            left -= len(jobs)
            known = [each for each in jobs if json.loads(each.event.value or b"")["aircraft"]]
            queue.ack(*known)
            queue.nack(*(each for each in jobs if each not in known), reason=WHY)
            if not left:
                return
    raise NotReadyError(f"{left} calls of the topic {BOARDING} were given to nobody")


def say(endpoint: str, produce: int) -> None:
    """Four pages of the console, each with what is on it."""
    console = f"http://{endpoint}/console"
    print(
        f"""
In the console, while this goes on or later:
  {console}#ring
      the ring: who leads what, and how much is written
  {console}#group/{BEHIND}
      a group that has begun to read the flights, and has a lag
  {console}#topic/{BOARDING}.dead
      a dead letter: the queue {GATES} gave it up, and says why; send it again, or drop it
  {console}#topic/{GREETINGS}?live=1
      events as they come: open it, then
        curl -d '{{"hello":1}}' -H 'Content-Type: application/json' \\
             'http://127.0.0.1:{produce}/v1/topic/{GREETINGS}/messages?partitionKey=me'
""",
        flush=True,
    )
