"""Spark's Python daemon, with workers that do not clean up for 40 ms after each task.

For `spark.python.daemon.module`. The stock daemon collects garbage after each task, over the whole
heap of pyarrow and numpy; here what is loaded by then is moved out of the collector's sight
(`barco.spark.base.settle`). It must be importable wherever tasks run, and imports nothing that
starts threads: workers are forked from this process.
"""

import os
import socket

from pyspark import daemon

from barco.spark.base.settle import settle

SEND_BYTES = 1 << 20
"""Of a Unix socket: a batch. With the kernel's default of a fifth of that a worker and the JVM wait
for each other seven times as often."""

_stock_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """One task. A query that needed no more of it has hung up: that is the end, and no error."""
    settle()
    if sock.family == socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
    try:
        return _stock_worker(sock, authenticated)
    except BrokenPipeError:
        os._exit(1)  # As the stock daemon does, which prints a traceback first.


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
