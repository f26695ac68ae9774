"""`python -P -m barco.workers TITLE`, or `run([TITLE])` in a fork: started by the supervisor, with
its options as input."""

import asyncio
import logging
import os
import sys
from typing import NoReturn

from barco import __version__
from barco.errors import BarcoError, ConfigError
from barco.log import follow, setup
from barco.model.options import WorkerOptions
from barco.workers.process.build import make_reactor, make_store, read_bytes
from barco.workers.process.scheduling import ask_long_slices, pin
from barco.workers.process.selector import ReactorSelector
from barco.workers.process.turns import Turns
from barco.workers.storage.files.bulk import open_bulk
from barco.workers.worker import Worker, exit_status

log = logging.getLogger("barco.worker")


def read_options() -> WorkerOptions:
    """From the standard input, which is nobody's after that."""
    text = sys.stdin.read()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return WorkerOptions.from_json(text)


def main(arguments: list[str]) -> int:
    """Runs one worker to its end; returns the exit status."""
    setup(sys.stderr)
    if not __debug__:
        raise ConfigError("barco must not run under python -O: its assertions guard the data")
    if len(arguments) != 1:
        print("usage: started by `barco serve`, with its options on its input", file=sys.stderr)
        return 2
    options = read_options()
    if options.version != __version__:
        raise ConfigError(f"worker {__version__} was started by supervisor {options.version}")
    follow(options.log_level, "json")
    pin(options.core)
    ask_long_slices()
    bulk = open_bulk(options.engine, read_bytes(options))
    session = int.from_bytes(os.urandom(7), "little")
    store = make_store(options, bulk)
    reactor = make_reactor(options, session)
    turns = Turns()
    selector = ReactorSelector(reactor, turns)
    loop = asyncio.SelectorEventLoop(selector)
    asyncio.set_event_loop(loop)
    worker = Worker(options, reactor, store, bulk, session, turns)
    selector.on_upcalls = worker.upcalls
    try:
        return loop.run_until_complete(worker.run())
    finally:
        loop.close()
        bulk.close()
        reactor.close()


def run(arguments: list[str]) -> NoReturn:
    """One worker from its start to its end, which is the process's."""
    try:
        status = main(arguments)
    except (BarcoError, OSError) as error:
        log.critical(str(error))
        status = exit_status(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    run(sys.argv[1:])
