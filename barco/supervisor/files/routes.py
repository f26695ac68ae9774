"""The routes of the ring as a broker last knew them, in a file: a hint for its next start.

With it a start finds the leaders before anybody has answered; without it, it learns the same a
little later. So what is damaged, or another cluster's, is ignored and said, and never repaired; and
it is not synced: a power cut may take it.
"""

import logging
import os
import struct
from pathlib import Path

from crc32c import crc32c

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.routes import RouteTable, bytes_max, unpack_routes
from barco.errors import ProtocolError

ROUTES = "routes"
NEW = ".new"
_HEAD = struct.Struct("<8s16sI")
"""What it is, the cluster's uuid, and a CRC-32C of all that follows."""

_MAGIC = b"barco\0r1"

log = logging.getLogger("barco.cluster")


def store_routes(path: Path, cluster_uuid: str, table: RouteTable) -> None:
    """Put it into a data directory, all or nothing; why it can not be is said.

    cluster_uuid: 32 hexadecimal digits.
    """
    packed, uuid = table.packed(), bytes.fromhex(cluster_uuid)
    new = path / (ROUTES + NEW)
    try:
        new.write_bytes(_HEAD.pack(_MAGIC, uuid, crc32c(uuid + packed)) + packed)
        os.replace(new, path / ROUTES)
    except OSError as error:
        log.warning("%s is not written: %s", path / ROUTES, error.strerror or error)


def stored_routes(path: Path, cluster_uuid: str, cut: Cut) -> RouteTable:
    """What `store_routes` has put there; an empty table where there is nothing that can be used."""
    file = path / ROUTES
    try:
        with open(file, "rb") as stream:
            data = stream.read(_HEAD.size + bytes_max(cut) + 1)
        if len(data) < _HEAD.size:
            raise ProtocolError(f"it has {len(data)} bytes")
        magic, uuid, check = _HEAD.unpack_from(data)
        packed = data[_HEAD.size :]
        if magic != _MAGIC or check != crc32c(uuid + packed):
            raise ProtocolError("it is damaged, or something else")
        if uuid != bytes.fromhex(cluster_uuid):
            raise ProtocolError(f"it is of cluster {uuid.hex()}")
        return unpack_routes(cut, packed)
    except FileNotFoundError:
        pass
    except (OSError, ProtocolError) as error:
        log.warning("%s is ignored, the routes are learned anew: %s", file, error)
    return RouteTable(cut)
