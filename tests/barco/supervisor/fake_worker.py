"""A worker that only keeps the supervisor company: it does what the environment tells it to.

BARCO_FAKE is a comma list of: hang (never say anything), die (exit 3 at once), die-ready (exit 3
after ready), config (exit 78), deaf (ignore drain), garbage (not frames), trace (a traceback),
once (misbehave only in the first life of a worker: a marker file in the data directory).
"""

import os
import select
import socket
import sys
import time
from pathlib import Path

from barco.model.options import WorkerOptions
from barco.protocol import frame

options = WorkerOptions.from_json(sys.argv[1])
modes = set(os.environ.get("BARCO_FAKE", "").split(","))
marker = Path(options.data_dir) / "run" / f"lived-{options.worker}"
if "once" in modes and marker.exists():
    modes = set()
marker.touch()

channel = socket.socket(fileno=options.channel_fd)
say = lambda **message: channel.sendall(frame.encode(message))  # noqa: E731

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

listeners = {
    fds[0]: socket.socket(fileno=fds[0]) for fds in options.listeners.values()
}
print('{"time": "2026-01-01T00:00:00.000Z", "level": "info", "message": "fake is up"}', flush=True)
say(type="ready", pid=os.getpid(), engine="epoll", engine_reason="a test")
if "die-ready" in modes:
    sys.exit(3)

decoder = frame.Decoder()
version = 0
replies = []
asked = 0
while True:
    readable, _, _ = select.select([channel, *listeners], [], [], 0.2)
    say(type="heartbeat", stats={"version": version})
    for item in readable:
        if item is channel:
            data = channel.recv(65536)
            if not data:
                sys.exit(0)
            for message in decoder.feed(data):
                if message["type"] == "view":
                    version = message["version"]
                    say(type="seen", version=version)
                elif message["type"] == "reply":
                    replies.append(message)
                elif message["type"] == "drain" and "deaf" not in modes:
                    sys.exit(0)
            continue
        connection, _ = listeners[item].accept()
        with connection:
            # One line in (an operation of the group machine, or "pid"), one line out.
            word = connection.recv(1000).decode().split()
            if word[0] == "register":
                args = {"consumerId": word[1], "group": "g", "topics": ["t"]}
                args["start"] = "startFromEarliest"
                asked += 1
                say(type="request", id=asked, op="register", args=args)
                connection.sendall(b"asked")
            elif word[0] == "state":
                connection.sendall(repr((options.worker, version, replies)).encode())
            elif word[0] == "crash":
                os.kill(os.getpid(), 9)
            else:
                connection.sendall(str(os.getpid()).encode())
