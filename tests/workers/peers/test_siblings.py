"""The hand-off connections: whoever waits for them, whoever comes late, whoever comes back."""

import asyncio
import dataclasses
import os
import time

from barco.workers.peers.links import Addresses
from barco.workers.peers.ranges import RingRanges
from barco.workers.peers.siblings import HandOff

from ..twin import Broker


class Reactor:
    """Takes the sockets, and closes them at the end."""

    def __init__(self):
        self.peers = []

    def listen(self, fd, kind):
        pass

    def attach_peer(self, worker, fd, seal):
        assert seal is None, "processes of one broker speak plain"
        self.peers.append(worker)
        os.close(fd)


def hand_off(reactor, options):
    return HandOff(reactor, Addresses(options), RingRanges(options), lambda process: "")


async def connected(end, seconds):
    """Whether all connections stand, at the latest after so long."""
    if not end._tasks:
        return True
    _, pending = await asyncio.wait(end._tasks.values(), timeout=seconds)
    return not pending


def test_all_stand_in_the_end(tmp_path):
    async def main():
        reactors = [Reactor() for _ in range(3)]
        broker = Broker(workers=3)
        ends = [
            hand_off(r, dataclasses.replace(broker.options(n), data_dir=str(tmp_path)))
            for n, r in enumerate(reactors)
        ]
        ends[0].start()
        ends[1].start()
        assert await connected(ends[0], 0.05) is False
        ends[2].start()
        began = time.monotonic()
        assert await connected(ends[0], 30) and await connected(ends[2], 30)
        assert time.monotonic() - began < 20
        assert sorted(reactors[0].peers) == [1, 2]

        ends[0].connect(2)  # Stands already.
        ends[0].lost(2)  # It closed, and is there again.
        assert await connected(ends[0], 30)
        assert sorted(reactors[0].peers) == [1, 2, 2]
        for end in ends:
            await end.close()
        ends[0].lost(1)
        assert await connected(ends[0], 0.01) and len(reactors[0].peers) == 3

    asyncio.run(main())


def test_a_worker_alone_is_connected(tmp_path):
    async def main():
        options = dataclasses.replace(Broker(workers=1).options(0), data_dir=str(tmp_path))
        end = hand_off(Reactor(), options)
        end.start()
        assert await connected(end, 0)
        await end.close()

    asyncio.run(main())
