"""A process that has loaded what a worker needs and does nothing but fork workers.

An interpreter that loads a worker's modules takes some 0.2 s of CPU, a fork of one that has loaded
them takes milliseconds, and what they share is in memory once. The supervisor forks this server
before it has opened anything, made a thread or read a secret; so a worker has none of that either.

A worker is to be the supervisor's own child, which hears of its end and how it ended, and with
which it dies: the server forks a process that forks the worker and exits, and who is left without a
parent falls to the next "subreaper" above, which the supervisor is (prctl(2)).

It knows nothing of what workers do: only the name of the module whose `run` does it.
"""

import asyncio
import ctypes
import errno
import fcntl
import gc
import importlib
import json
import os
import resource
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from barco.supervisor.tied import adopt_orphans, die_with

COMM = "barco-forks"
"""Of the server, as /proc/PID/comm has it."""

REQUEST_BYTES_MAX = 4096
FDS_MAX = 250
"""Descriptors of a request; the kernel takes 253 (SCM_MAX_FD)."""

ANSWER_SECONDS_MAX = 60.0
"""The first answer waits for the modules, on a machine that may be busy."""

PR_SET_NAME = 15

_INT = struct.Struct("q")
_libc = ctypes.CDLL(None, use_errno=True)  # Before any fork: the child must not run the loader.


class Forked:
    """A child that the server forked: what is used of `subprocess.Popen`, and nothing more."""

    def __init__(self, pid: int, stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit status, negative if it was a signal; None: it lives."""
        return self._look(os.WNOHANG)

    def wait(self) -> int:
        """Until it has ended."""
        status = self._look(0)
        assert status is not None, "it was waited for"
        return status

    def kill(self) -> None:
        """SIGKILL, if it lives."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _look(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class ForkServer:
    """The supervisor's side."""

    def __init__(self, pid: int, end: socket.socket) -> None:
        self.pid = pid
        self._end = end
        self._turn = asyncio.Lock()

    @classmethod
    def begin(cls, module: str) -> "ForkServer":
        """Fork it; it loads the module while this process goes on. OSError when nothing forks.

        module: has `run`, which takes a list with the title, and ends the process.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        adopt_orphans()
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                _serve(theirs, supervisor, module)
            finally:  # Whatever goes wrong, what the supervisor was about to do is not its.
                os._exit(1)
        theirs.close()
        ours.setblocking(False)
        return cls(pid, ours)

    async def fork(self, title: str, fds: Sequence[tuple[int, int]], stdout: IO[bytes]) -> Forked:
        """A worker that has these descriptors: (of this process, its number there); the last of
        two that shall have one number counts.

        stdout: the end that is read of what is number 1 there. OSError: there are too many
        processes, or no memory (as fork(2) says it); ConnectionError: there is no server any more.
        """
        assert len(fds) <= FDS_MAX, "a message takes no more"
        request = json.dumps({"title": title, "at": [there for _, there in fds]}).encode()
        assert len(request) <= REQUEST_BYTES_MAX, "a title has a name and two numbers"
        loop = asyncio.get_running_loop()
        async with self._turn:
            if self._end.fileno() < 0:
                raise ConnectionResetError("the fork server has ended")
            try:
                socket.send_fds(self._end, [request], [here for here, _ in fds])
                answered = loop.sock_recv(self._end, _INT.size)
                answer = await asyncio.wait_for(answered, ANSWER_SECONDS_MAX)
            except TimeoutError:
                self.close()
                raise ConnectionAbortedError("the fork server does not answer") from None
            except ConnectionError:
                answer = b""
            except BaseException:
                self.close()  # What it may answer yet is not for the next one that asks.
                raise
        if len(answer) != _INT.size:
            raise ConnectionResetError("the fork server has ended")
        (pid,) = _INT.unpack(answer)
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return Forked(pid, stdout)

    def close(self) -> None:
        """End it, also one that stands still. Workers live on."""
        if self._end.fileno() >= 0:
            self._end.close()
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


# --- In the server, and in what it forks ------------------------------------------------------


def _serve(end: socket.socket, supervisor: int, module: str) -> NoReturn:
    """Fork for whoever is at the other end, until that is closed."""
    die_with(supervisor)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # As workers have it: the supervisor stops them.
    _libc.prctl(PR_SET_NAME, COMM.encode(), 0, 0, 0)
    last = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(3, end.fileno())
    os.closerange(end.fileno() + 1, last)
    entry = importlib.import_module(module)
    gc.collect()
    gc.freeze()  # What is never looked at is not written to either, and stays shared.
    while True:
        request, fds, flags, _ = socket.recv_fds(end, REQUEST_BYTES_MAX, FDS_MAX)
        if not request:
            os._exit(0)
        assert not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC), "both ends know the bounds"
        asked = json.loads(request)
        here, there = socket.socketpair()
        with here, there:
            try:
                if _orphan():
                    here.close()
                    end.close()
                    _be(entry, asked["title"], fds, asked["at"], there, supervisor)
                here.send(b"g")
                there.close()
                answer = here.recv(_INT.size) or _INT.pack(-errno.EAGAIN)  # Killed at once.
            except OSError as error:
                answer = _INT.pack(-(error.errno or errno.EAGAIN))
        for each in fds:
            os.close(each)
        end.send(answer)


def _orphan() -> bool:
    """Fork a process that has no parent any more when this returns in the server: True in that
    process, False in the server. OSError as fork(2) says it."""
    between = os.fork()
    if between == 0:
        try:
            if os.fork():
                os._exit(0)
        except OSError as error:
            os._exit(error.errno or errno.EAGAIN)
        return True
    status = os.waitstatus_to_exitcode(os.waitpid(between, 0)[1])
    if status:
        raise OSError(status if status > 0 else errno.EAGAIN, "cannot fork")
    return False


def _be(
    entry: Any,
    title: str,
    fds: Sequence[int],
    at: Sequence[int],
    server: socket.socket,
    supervisor: int,
) -> NoReturn:
    """A worker, with what an interpreter does around a program."""
    status = 1
    try:
        # It says when its parent has ended: then it is the supervisor's child. Or nothing, if it
        # was killed meanwhile; then nobody would know of this one.
        if server.recv(1):
            die_with(supervisor)
            server.send(_INT.pack(os.getpid()))
            server.close()
            _renumber(fds, at)
            _retitle(title)
            entry.run([title])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  # The last words of whoever dies of it.
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _renumber(fds: Sequence[int], at: Sequence[int]) -> None:
    """Give received descriptors the numbers that they shall have, and close all others."""
    above = max(at) + 1
    aside = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, above) for each in fds]
    os.closerange(3, min(aside))
    for here, there in zip(aside, at, strict=True):
        os.dup2(here, there, inheritable=there <= 2)
    os.closerange(min(aside), max(aside) + 1)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  # The supervisor may have had none.
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def _retitle(title: str) -> None:
    """What `ps` and `top` show, as far as there is room where the arguments of this program are."""
    _libc.prctl(PR_SET_NAME, b"barco-worker", 0, 0, 0)
    try:
        stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return  # There is no /proc here, and so nobody to read it.
    start, end = int(stat[45]), int(stat[46])  # arg_start and arg_end, proc(5).
    if 0 < start < end:
        text = f"barco {title}".encode()[: end - start - 1]
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, text, len(text))
