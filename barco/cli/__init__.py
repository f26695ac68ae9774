"""The command line: `barco COMMAND ...`. Each command is a module of `commands`.

A command module has `add_parser(subparsers)`, which describes it, and `run(args) -> int`, which
does it and returns the exit code: 0 success, 2 usage, 78 configuration refused, 1 anything else.
"""

import argparse
import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import ModuleType

import barco
from barco.errors import BarcoError

COMMANDS = (
    "serve",
    "format",
    "produce",
    "consume",
    "load",
    "spark-load",
    "export",
    "topics",
    "groups",
    "queue",
    "dead",
    "users",
    "schemas",
    "status",
    "top",
    "ring",
    "scale",
    "pre-stop",
    "drain",
    "dump",
    "recover",
    "replace",
    "backup",
    "restore",
    "certs",
    "check",
    "upgrade-check",
    "tune",
    "tour",
    "polar",
    "completion",
)
TELLS_OF_ALL = "completion"
"""The command that needs the parsers of all others."""
INTERRUPTED = 130
"""128 + SIGINT: what shells expect of a program that Ctrl-C ended."""

DETAIL_CHARACTERS_MAX = 2_000
"""Of what a command says when it fails. The list of all keys has 700."""

EPILOG = """\
A first try:
  barco serve --dev                     start a broker on this machine
  barco tour                            see what it does, in two minutes, from another terminal
  echo '{"hello": 1}' | barco produce greetings
  barco consume greetings --from earliest

Exit codes:
  0    success
  2    wrong usage
  78   the configuration was refused
  130  interrupted
  1    anything else

`barco COMMAND --help` explains each command, with examples.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if sys.stdout is None:  # Closed by whoever started this: `barco status >&-`.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives.
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except BarcoError as error:
        print(f"barco: {one_line(error.detail)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except OSError as error:
        serves = (sys.argv[1:] if argv is None else argv)[:1] == ["serve"]
        if isinstance(error.filename, str) and not serves:
            # What an operator has named, and what can not be done with it.
            words = f"{error.filename}: {error.strerror}"
            print(f"barco: cannot use {one_line(words)}", file=sys.stderr)
            return 1
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        print("barco: what it prints can not be written: no space is left", file=sys.stderr)
        _reader_left()
        return 1


def _run(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["serve"]:  # Who asks it to read again what it has not read yet means well.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    modules = _modules(arguments)
    parser = _parser(modules)
    try:
        args = parser.parse_args(arguments)
    except SystemExit as ended:
        return _flushed(ended.code if isinstance(ended.code, int) else 2)
    if "seal" in args:
        args.seal(args)
    return _flushed(modules[args.command].run(args))


def one_line(detail: str) -> str:
    """As a terminal gets it: what an operator gave may be in it, of any length, and any bytes."""
    if len(detail) > DETAIL_CHARACTERS_MAX:
        half = DETAIL_CHARACTERS_MAX // 2
        detail = f"{detail[:half]} ... {detail[-half:]}"
    shown = (each if each.isprintable() else repr(each)[1:-1] for each in detail)
    return "".join(shown)


def _modules(arguments: Sequence[str]) -> dict[str, ModuleType]:
    """The modules of the commands: only the one that is asked for, when that is plain."""
    wanted: Sequence[str] = COMMANDS
    if arguments and arguments[0] in COMMANDS and arguments[0] != TELLS_OF_ALL:
        wanted = (arguments[0],)
    modules = {}
    for command in wanted:
        name = f"{__name__}.commands.{command.replace('-', '_')}"
        try:
            modules[command] = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    return modules


def _parser(modules: dict[str, ModuleType]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barco",
        description="barco, an event-streaming broker: durable before it answers, over HTTP.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"barco {barco.__version__}")
    subparsers = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True
    )
    for module in modules.values():
        module.add_parser(subparsers)
    return parser


def _flushed(code: int) -> int:
    """The exit code, once everything printed has reached its reader."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_left()
    return code


def _reader_left() -> int:
    """`barco … | head`: the reader has what it wanted. Python must not complain at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    return 0
