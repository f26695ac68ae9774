"""The steps of the tour: words, and the lines that a person would type."""

from typing import NamedTuple

EVENTS = 8
"""That are there before the queue is made."""

READ_FIRST = 3
"""By the group; the rest is its lag."""


DOOR = '{"door":"cellar","open":true}'
DOORS = """for door in cellar attic; do seq 3 | sed 's/.*/{"door":"'$door'","n":&}/'; done"""


class Sight(NamedTuple):
    """One thing to see."""

    title: str
    words: str
    lines: tuple[str, ...]
    """For a shell. Each is shown, and run as it is shown."""
    http: tuple[str, ...] = ()
    """With curl. Shown only."""
    console: str = ""
    """What is behind the # of the console's address."""
    refused: tuple[int, ...] = ()
    """Lines (from 0) that end with 1, as they should."""


def steps(topic: str, group: str, queue: str, ports: tuple[str, str]) -> tuple[Sight, ...]:
    """All of them. ports: `http://HOST:PORT` to produce and to consume at."""
    produce, consume = ports
    return (
        _ring(),
        _an_event(topic, produce),
        _order(topic, consume),
        _lag(topic, group, consume),
        _live(topic, consume),
        _queue(topic, queue, consume),
        _dead(topic),
    )


def _ring() -> Sight:
    return Sight(
        "The ring",
        "Keys lie on a ring. It is cut into slices; each has one leader, which orders the events "
        "of its keys. A cluster keeps each of them on three brokers.",
        ("barco status", "barco ring"),
        console="ring",
    )


def _an_event(topic: str, produce: str) -> Sight:
    url = f"{produce}/v1/topic/{topic}/messages?partitionKey=cellar"
    return Sight(
        "An event",
        "Whatever is posted is one event. It is on stable storage when the answer comes, and not "
        "before. The tour has a topic of its own, whose events go after an hour at the latest.",
        (
            f"barco topics create {topic} --retention-hours 1",
            f"echo '{DOOR}' | barco produce {topic} --key-field door",
        ),
        http=(f"curl -d '{DOOR}' -H 'Content-Type: application/json' '{url}'",),
        console=f"topic/{topic}",
    )


def _order(topic: str, consume: str) -> Sight:
    return Sight(
        "In the order of its key",
        "Events of one key lie in one slice, in the order in which they were stored. Of each line "
        "of the output the second column is topic/slice@offset, the third the key.",
        (
            f"{DOORS} | barco produce {topic} --key-field door",
            f"barco consume {topic}",
        ),
        http=(f"curl {consume}/v1/topic/{topic}/slices",),
        console=f"topic/{topic}",
    )


def _lag(topic: str, group: str, consume: str) -> Sight:
    return Sight(
        "A group, and its lag",
        f"Readers of one group share the slices, and go on where the group has stopped. This one "
        f"reads {READ_FIRST} events and leaves: how many it has not read yet is its lag.",
        (
            f"barco consume {topic} --group {group} --count {READ_FIRST}",
            f"barco groups describe {group}",
        ),
        http=(f"curl {consume}/v1/groups/{group}",),
        console=f"group/{group}",
    )


def _live(topic: str, consume: str) -> Sight:
    later = f"sleep 1; echo '\"the bell\"' | barco produce {topic} --key bell"
    url = f"{consume}/v1/topic/{topic}/events?from=earliest"
    return Sight(
        "As it happens",
        "Who follows gets each event when it is durable. Here one is produced by a second shell "
        "while the first one waits for it; it is the last line.",
        (f"({later}) & barco consume {topic} --follow --count {EVENTS}",),
        http=(f"curl -N -H 'Accept: text/event-stream' '{url}'",),
        console=f"topic/{topic}",
    )


def _queue(topic: str, queue: str, consume: str) -> Sight:
    url, body = f"{consume}/v1/queue/{queue}", '{"events":["ID"]}'
    return Sight(
        "A queue",
        "In a queue each event is acknowledged by itself, by whoever is free. `--run` gives a "
        "program each event; what it fails at is given again, here one time more. grep fails at "
        "the event that says jammed: barco gives that back, and ends with 1 to say so.",
        (
            f"barco queue make {queue} --topic {topic} --max-deliveries 2",
            f"""echo '{{"door":"gate","jammed":true}}' | barco produce {topic} --key-field door""",
            f"barco queue take {queue} --topic {topic} --run 'grep -v jammed'",
            f"barco queue describe {queue}",
        ),
        http=(
            f"curl -X POST '{url}/lease?topic={topic}'",
            f"curl -H 'Content-Type: application/json' -d '{body}' '{url}/ack?topic={topic}'",
        ),
        console=f"group/{queue}",
        refused=(2,),
    )


def _dead(topic: str) -> Sight:
    return Sight(
        "A dead letter",
        "What was given as often as the queue allows is set aside in a topic of its own, with the "
        "reason. `barco dead resend` sends it again when the fault is mended, `barco dead drop` "
        "gives it up; so does the console.",
        (f"barco dead list {topic}", f"barco dead show {topic}"),
        console=f"topic/{topic}.dead",
    )
