"""One broker's gossip as a process of its own: `gossip_process.py ORDINAL PORT PORT PORT`.

For a line on its standard input it says what it has seen, as a line of JSON; it runs until the
input ends.
"""

import asyncio
import json
import sys

from gossiping import Lab, host

from barco.cluster.gossip.facts import BROKER, CONFIRMED, DOWN, SUSPECT
from barco.cluster.gossip.gossip import Changed


async def main(ordinal: int, ports: list[int]) -> None:
    """Gossip, and count what was said of the others."""
    lab = Lab(0)
    lab.brokers = len(ports)
    lab.addresses = [(host(number), port) for number, port in enumerate(ports)]
    node = await lab.start(ordinal)
    print("started", flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    await reader.readline()
    said = [
        effect.fact.version[1]
        for effect in lab.effects[ordinal]
        if isinstance(effect, Changed) and effect.fact.kind == BROKER
    ]
    seen = {str(about): lab.state(ordinal, about) for about in range(len(ports))}
    counters = node.machine.members.counters
    print(
        json.dumps(
            {
                "states": seen,
                "suspicions": sum(state in (SUSPECT, CONFIRMED) for state in said),
                "downs": said.count(DOWN),
                "health": node.machine.members.health,
                "probes": counters.probes,
                "probes_failed": counters.probes_failed,
                "messages_sent": node.counters.messages_sent,
            }
        ),
        flush=True,
    )
    await reader.read()
    await node.close(depart=False)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), [int(port) for port in sys.argv[2:]]))
