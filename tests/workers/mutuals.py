"""Link servers with TLS, and certificates of all kinds, for tests of both."""

import asyncio
import contextlib
import dataclasses
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from reference.certificates import Files, authority, broker
from twin import Broker

from barco.mutual import Mutual
from barco.protocol import door
from barco.protocol.link import KINDS, Hello
from barco.workers.peers import links
from barco.workers.peers.links import End, LinkServer, open_link

UUID, OTHER_UUID = "c" * 32, "e" * 32
KEY = door.link_key(b"a secret of these tests", UUID)
HELLO = Hello(
    kind="",
    cluster_uuid=UUID,
    ordinal=1,
    disk_uuid="d" * 32,
    worker=0,
    token=-(2**63),
    session=7,
    ring_size=3,
    workers=2,
    slices_per_range=8,
)
CALLER = replace(HELLO, ordinal=0, session=9)
SECONDS = 30.0


class Made:
    """Certificates: of brokers 0 to 2, and such as nobody should believe."""

    def __init__(self, path: Path) -> None:
        self.ca, self.other_ca = authority(path), authority(path, "other")
        name = f"barco:{UUID}/"
        self.good = [broker(path, self.ca, f"b{each}", f"{name}{each}") for each in range(3)]
        self.strange = [
            broker(path, self.other_ca, f"s{each}", f"{name}{each}") for each in range(2)
        ]
        self.old = [
            broker(path, self.ca, f"o{each}", f"{name}{each}", days=-1) for each in range(2)
        ]
        self.elsewhere = [
            broker(path, self.ca, f"e{each}", f"barco:{OTHER_UUID}/{each}") for each in range(2)
        ]
        self.nameless = broker(path, self.ca, "n", "https://example.org/0")
        self.client = broker(path, self.ca, "c", f"{name}0", use="clientAuth")

    def mutual(self, files: Files, uuid: str = UUID, *, required: bool = True) -> Mutual:
        """As a broker that shows this one has it; it believes those of the good authority."""
        texts = {
            "certificate": files.certificate.read_text(),
            "key": files.key.read_text(),
            "ca": self.ca.certificate.read_text(),
        }
        return Mutual(uuid, texts | {"until": 1, "required": required})

    def bad(self, ordinal: int) -> dict[str, Mutual]:
        """What one could come with that says it is this broker."""
        return {
            "plain": Mutual(UUID, {}),
            "another authority's": self.mutual(self.strange[ordinal]),
            "expired": self.mutual(self.old[ordinal]),
            "another broker's": self.mutual(self.good[2]),
            "another cluster's": self.mutual(self.elsewhere[ordinal]),
            "nobody's": self.mutual(self.nameless),
        }


class Taken:
    """A link server as broker 1 has it, and what it has taken."""

    def __init__(self, mutual: Mutual) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.fatal: list[str] = []
        self.links: list[tuple[Hello, End]] = []
        self.server = LinkServer(HELLO, self.addresses(), KEY, mutual, self.fatal.append)
        for kind in KINDS:
            self.server.handle(kind, lambda hello, end: self.links.append((hello, end)))

    def addresses(self, port: int | None = None) -> links.Addresses:
        options = dataclasses.replace(
            Broker().options(0),
            ring_size=3,
            worker=3,
            brokers=["127.0.0.1"] * 3,
            shard_endpoints=dict.fromkeys(range(6), ""),
            replication_port=port or self.port,
            link_key=KEY.hex(),
            shard_port=9300,
        )
        return links.Addresses(options)

    async def call(self, kind: str, mutual: Mutual, port: int | None = None) -> End:
        _, end = await open_link(self.addresses(port), (1, 0), CALLER, kind, mutual)
        return end


@contextlib.asynccontextmanager
async def listening(mutual: Mutual) -> Any:
    taken = Taken(mutual)
    taken.server.start(taken.listener.fileno())
    with taken.listener:
        yield taken
        await taken.server.close()
        assert not taken.fatal
        for _, end in taken.links:
            end.drop()


def run(main: Callable[[], Any]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(main(), SECONDS)

    asyncio.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)
