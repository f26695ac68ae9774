"""How a worker is started: by the fork server, or as a program where there is none.

It knows what a process is given. What it does, and how long it may take, is its keeper's.
"""

import logging
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import IO, Protocol

from msgspec import Struct

from barco.errors import OperatorError
from barco.model.options import WorkerOptions
from barco.supervisor.children.forks import ForkServer
from barco.supervisor.sources.plan import COMMAND, ENTRY
from barco.supervisor.tied import die_with

log = logging.getLogger("barco.supervisor")


class Child(Protocol):
    """A process of this one, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """Where its words are read."""

    @property
    def returncode(self) -> int | None:
        """Its exit status, negative if it was a signal; None: it was not waited for."""

    def poll(self) -> int | None:
        """Its exit status, if it has ended by now."""

    def wait(self) -> int:
        """Until it has ended."""

    def kill(self) -> None:
        """SIGKILL."""


class Starter(Struct):
    """Starts a broker's workers."""

    command: Sequence[str]
    """Starts a worker as a program; its title is one more argument."""
    lock: int
    """Of the data directory: who writes to it has the lock open."""
    forks: ForkServer | None = None

    @classmethod
    def begin(cls, command: Sequence[str], lock: int) -> "Starter":
        """By forks, if workers are the usual ones; OperatorError when nothing forks."""
        if tuple(command) != COMMAND:
            return cls(command, lock)
        try:
            return cls(command, lock, ForkServer.begin(ENTRY))
        except OSError as error:
            raise _no_room("workers", error) from None

    async def start(self, options: WorkerOptions, inherit: Sequence[int]) -> Child:
        """A process that has these options, and these descriptors by the same numbers.

        OperatorError when the machine has no room for it. A fork server that has ended, which takes
        somebody to kill it, is missed by nobody: programs are started from then on.
        """
        inherit = [self.lock, *inherit]
        try:
            if self.forks is not None:
                try:
                    return await self._fork(self.forks, options, inherit)
                except ConnectionError as error:
                    if self.forks is not None:
                        log.warning("%s: workers are started as programs", error)
                    self.close()
            return self._run(options, inherit)
        except OSError as error:
            raise _no_room(f"worker {options.worker}", error) from None

    def close(self) -> None:
        """Nothing is started any more by the fork server."""
        if self.forks is not None:
            self.forks.close()
            self.forks = None

    async def _fork(
        self, server: ForkServer, options: WorkerOptions, inherit: Sequence[int]
    ) -> Child:
        read, write = os.pipe()
        stdout = os.fdopen(read, "rb")
        try:
            with as_input(options) as told:
                fds = [*((fd, fd) for fd in inherit), (told.fileno(), 0), (write, 1), (write, 2)]
                return await server.fork(options.title, fds, stdout)
        except BaseException:
            stdout.close()
            raise
        finally:
            os.close(write)

    def _run(self, options: WorkerOptions, inherit: Sequence[int]) -> Child:
        with as_input(options) as told:
            return subprocess.Popen(
                [*self.command, options.title],
                stdin=told,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=inherit,
                # Safe: the supervisor has one thread, and the child calls nothing that locks.
                preexec_fn=_in_child(os.getpid()),  # noqa: PLW1509
            )


def _no_room(what: str, error: OSError) -> OperatorError:
    return OperatorError(
        f"cannot start {what}: {error.strerror}: raise the limits on processes and memory"
        " (ulimit -u, TasksMax, MemoryMax)"
    )


def as_input(options: WorkerOptions) -> IO[bytes]:
    """A file in memory from which a worker reads its options: they hold secrets, and a command
    line is everybody's to read."""
    file = os.fdopen(os.memfd_create("options", os.MFD_CLOEXEC), "w+b")
    file.write(options.to_json().encode())
    file.seek(0)
    return file


def _in_child(supervisor: int) -> Callable[[], None]:
    """What happens in a worker between fork and exec."""

    def prepare() -> None:
        # Without a supervisor nobody restarts, drains or informs a worker: it dies with it.
        die_with(supervisor)
        # Ctrl-C, `timeout`, and the end of a terminal reach the whole process group; it is the
        # supervisor that stops workers, in an orderly way.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    return prepare
