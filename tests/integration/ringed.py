"""A ring of three that is started by `scripts/cluster.py`, and how it is asked."""

import asyncio
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

from barco.client.wire.access import Access
from barco.client.wire.codec import token_of
from barco.client.wire.http1 import Request
from barco.client.wire.transport import Pool
from barco.model.placement import Placement
from barco.types import Token

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cluster.py"
RING = Placement(3, 8)
PATIENCE_S = 240.0


def load_script():
    spec = importlib.util.spec_from_file_location("barco_cluster", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["barco_cluster"] = module  # Dataclasses look themselves up.
    spec.loader.exec_module(module)
    module.START_SECONDS = PATIENCE_S
    return module


def run(command):
    return subprocess.run(command, check=False, capture_output=True, text=True)


def request(cluster, ordinal, method, target, body=b"", *, port=9250):
    """(status, headers, parsed JSON or bytes) of one broker."""
    return ask(f"{cluster.hosts[ordinal]}:{port}", method, target, body)


def ask(endpoint, method, target, body=b"", kind="application/json"):
    async def main():
        pool = Pool(Access.of(endpoint), connections_max=1)
        try:
            headers = (("Content-Type", kind),)
            answer = await pool.request(
                endpoint, Request(method, target, headers, body), timeout_s=60
            )
        finally:
            pool.close()
        try:
            return answer.status, answer.headers, json.loads(answer.body)
        except ValueError:
            return answer.status, answer.headers, answer.body

    return asyncio.run(main())


def key_in(index, start=0):
    """A key in the token range with this ring index."""
    number = start
    while RING.locate(Token(token_of(f"k{number}".encode())))[0] != index:
        number += 1
    return f"k{number}"


def until(condition, what):
    """Poll until it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def leaders(cluster):
    """The broker that leads each shard, as one that answers sees it."""
    shards = cluster.topology()["shards"]
    return [shard["ordinal"] if shard["up"] else None for shard in shards]


def stored(cluster, ordinal, target, body=b"1", kind="application/json"):
    """The answer, as soon as it is: a leader may change at any moment, on a busy machine."""

    def answer():
        endpoint = f"{cluster.hosts[ordinal]}:9251"
        status, _, told = ask(endpoint, "POST", target, body, kind)
        return told if status == 200 else None

    return until(answer, f"{target} is stored")


def described(cluster, ordinal, topic):
    """Its slices, as soon as all who lead some have told."""
    status, _, answer = request(cluster, ordinal, "GET", f"/v1/topic/{topic}/slices")
    return answer["slices"] if status == 200 else None


def all_ready(cluster):
    shards = cluster.status(0).get("shards", [])
    return shards and all(shard["ready"] for shard in shards)
