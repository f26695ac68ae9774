"""Reading a topic back: every slice on connections of its own, following cursors."""

import json
import subprocess
from pathlib import Path
from typing import Any

from bench.harness import SETTINGS
from bench.load import Load, load
from bench.machine import SERVER_CORE, MiB, tool
from bench.servers import Broker

CHUNKS = "Accept: application/vnd.barco.chunks"
ANSWER_BYTES_MAX = 4 * MiB


def slice_paths(server: Broker, topic: str) -> list[str]:
    """A path template for each slice of the topic that holds events."""
    slices = server.json("GET", f"/v1/topic/{topic}/slices")["slices"]
    return [
        f"/v1/topic/{topic}/slices/{found['token']}/{found['index']}/events"
        f"?from={{cursor}}&maxBytes={ANSWER_BYTES_MAX}"
        for found in slices
        if int(found["endOffset"]) > int(found["startOffset"])
    ]


def read_all(server: Broker, topic: str, per_slice: int = 1, **options: Any) -> Load:
    """Read stored chunks as they are from the earliest on; again from there at the end."""
    paths = slice_paths(server, topic)
    return load(
        server.port,
        pids=server.pids,
        method="GET",
        no_body=True,
        path=paths,
        header=[CHUNKS],
        connections=per_slice * len(paths),
        cursor_header="barco-next-cursor",
        discard=True,
        **options,
    )


def read_looping(server: Broker, topic: str, per_slice: int = 2, **options: Any) -> Load:
    """For the time of one run, over and over."""
    return read_all(server, topic, per_slice, **SETTINGS.window, **options)


def read_once(server: Broker, topic: str) -> Load:
    """From the earliest event to the last."""
    return read_all(server, topic, cursor_stop=True, seconds=600)


def segments(server: Broker) -> list[Path]:
    """The files of the log."""
    return sorted(server.data_dir.rglob("seg-*.log"))


def fio_bytes_per_second(files: list[Path]) -> float:
    """What fio reads from these files, one after the other, past the page cache."""
    command = [tool("fio"), "--name=replay", f"--filename={':'.join(map(str, files))}"]
    command += ["--readonly", "--rw=read", "--bs=1m", "--iodepth=4", "--ioengine=io_uring"]
    command += ["--direct=1", "--file_service_type=sequential", f"--cpus_allowed={SERVER_CORE}"]
    command += ["--output-format=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    text = done.stdout[done.stdout.index("{") :]
    return float(json.loads(text)["jobs"][0]["read"]["bw_bytes"])
