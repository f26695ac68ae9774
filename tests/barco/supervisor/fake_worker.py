"""A worker that only keeps the supervisor company: it does what the environment tells it to.

BARCO_FAKE is a comma list of: hang (never say anything), mute (nothing after ready), die (exit 3
at once), die-ready (exit 3 after ready), config (exit 78), trace (a traceback), deaf (ignore
drain), garbage (not frames), blind (never acknowledge a view); once (misbehave only in the first
life of a worker), only-1 (only worker 1 misbehaves).

To a client of any of its listeners it answers one line: "pid", "state", "register ID", "crash",
"granted" (the workers that were asked for).
"""

import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

from barco.model.options import WorkerOptions
from barco.protocol import frame

options: WorkerOptions
modes: set[str]
channel: socket.socket
log_line = {"time": "2026-01-01T00:00:00.000Z", "level": "info", "message": "fake is up"}


def say(**message: object) -> None:
    channel.sendall(frame.encode(message))


def where(fd: str) -> str:
    """What is open there; the directory that is being read is closed by now."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        return "/proc/self/fd"


def misbehave() -> None:
    if "hang" in modes:
        time.sleep(600)
    if "garbage" in modes:
        channel.sendall(b"\xff" * 64)
        time.sleep(600)
    if "trace" in modes:
        raise RuntimeError("the disk is made of cheese")
    if "die" in modes:
        say(type="fatal", text="cannot open the log: the disk is made of cheese")
        sys.exit(3)
    if "config" in modes:
        say(type="fatal", text="storage.segment_bytes does not fit this disk")
        sys.exit(78)


class FrameDecoder:
    """Bytes in, messages out, for a stream that arrives in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> list[frame.Message]:
        """The messages that `data` completes; the rest is kept, at most one frame of it."""
        self._buffer += data
        messages = []
        start = 0
        while (body := start + frame.LENGTH.size) <= len(self._buffer):
            (length,) = frame.LENGTH.unpack_from(self._buffer, start)
            if len(self._buffer) < body + length:
                break
            messages.append(frame.decode(bytes(self._buffer[body : body + length])))
            start = body + length
        del self._buffer[:start]
        return messages


class Worker:
    def __init__(self) -> None:
        self.decoder = FrameDecoder()
        self.version = 0
        self.consumers: set[str] = set()
        self.brokers: dict[int, str] = {}
        self.replies: list[frame.Message] = []
        self.asked = 0
        self.listeners = {
            fds[0]: socket.socket(fileno=fds[0]) for fds in options.listeners.values()
        }

    def run(self) -> None:
        while True:
            readable, _, _ = select.select([channel, *self.listeners], [], [], 0.1)
            if "mute" not in modes:
                say(type="heartbeat", stats={"version": self.version})
            for item in readable:
                if item is channel:
                    self.hear()
                else:
                    self.serve(self.listeners[item])

    def hear(self) -> None:
        data = channel.recv(65536)
        if not data:
            sys.exit(0)
        for message in self.decoder.feed(data):
            if message["type"] == "cluster":
                self.brokers |= {b["ordinal"]: b["state"] for b in message["brokers"]}
            elif message["type"] == "view":
                self.version = message["version"]
                for members in message["groups"].values():
                    self.consumers |= {name for name, value in members.items() if value}
                if "blind" not in modes:
                    say(type="seen", version=self.version)
            elif message["type"] == "reply":
                self.replies.append(message)
            elif message["type"] == "drain" and "deaf" not in modes:
                sys.exit(0)

    def serve(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return
        with connection:
            connection.sendall(self.answer(connection.recv(1000).decode().split()).encode())

    def answer(self, words: list[str]) -> str:
        if words[0] == "register":
            self.asked += 1
            args = {"consumerId": words[1], "group": "g", "topics": ["t"]}
            args |= {"start": "startFromEarliest"}
            say(type="request", id=self.asked, op="register", args=args)
            return "asked"
        if words[0] == "granted":
            say(type="workers")
            return "granted"
        if words[0] == "crash":
            os.kill(os.getpid(), 9)
        state = {
            "pid": os.getpid(),
            "worker": options.worker,
            "core": options.core,
            "open": {int(fd): where(fd) for fd in os.listdir("/proc/self/fd")},
            "given": [options.channel_fd, *self.listeners],
            "ignored": [n for n in (1, 2, 15) if signal.getsignal(n) is signal.SIG_IGN],
            "umask": os.umask(0o077),
            "pinned": sorted(os.sched_getaffinity(0)),
            "workers_asked": options.workers_asked,
            "members": options.held.members,
            "listeners": sorted(options.listeners),
            "version": self.version,
            "consumers": sorted(self.consumers),
            "brokers": [self.brokers[ordinal] for ordinal in sorted(self.brokers)],
            "replies": self.replies,
        }
        return json.dumps(state)


def run(arguments: list[str]) -> None:
    global options, modes, channel
    options = WorkerOptions.from_json(sys.stdin.read())
    modes = set(os.environ.get("BARCO_FAKE", "").split(","))
    marker = Path(options.data_dir) / "run" / f"lived-{options.worker}"
    if ("once" in modes and marker.exists()) or ("only-1" in modes and options.worker != 1):
        modes = set()
    marker.touch()
    channel = socket.socket(fileno=options.channel_fd)
    misbehave()
    print(json.dumps(log_line), flush=True)
    try:
        say(type="ready", pid=os.getpid(), engine="epoll", engine_reason="a test")
        if "die-ready" in modes:
            sys.exit(3)
        Worker().run()
    except (BrokenPipeError, ConnectionResetError):
        sys.exit(0)  # The supervisor has ended: its last word counts, and not a traceback here.


if __name__ == "__main__":
    run(sys.argv[1:])
