"""`barco tour`: see what a broker does, in two minutes."""

import argparse
import os
import secrets
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import barco
from barco.cli.commands.tour.steps import Sight, steps
from barco.cli.shared import talk
from barco.cli.shared.shown import VARIABLE
from barco.client.wire.access import HTTPS
from barco.config import endpoint_default
from barco.errors import BarcoError, NotFoundError
from barco.model.queues import GRAVEYARD

DESCRIPTION = """\
See what a broker does, in two minutes: the ring, an event, its order, a group that lags, an event
as it happens, a queue and a dead letter. Each step shows what you would type, does it, and says
where the console shows the same. It uses a topic, a group and a queue of its own, and removes them
at the end.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Examples:
  barco serve --dev                  a broker, in another terminal; or: make demo
  barco tour
  barco tour --yes                   without a pause between the steps
  barco tour --keep                  leave everything there, to be looked at

Needs sh, seq, sed and grep. {talk.EXIT_CODES}"""

HOW_TO_START = """\
Start one, in another terminal:
  barco serve --dev        data in ./barco-data; Ctrl-C ends it
or name one that runs: --endpoint HOST:PORT"""

WIDTH_MAX = 96
LINE_SECONDS_MAX = 60.0

_SHELL = 'barco() {{ {python} -P -m barco "$@"; }}\n{line}\n'
"""The program that this one is, whatever is first in the path."""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = talk.command(
        subparsers, "tour", help="see what a broker does, in two minutes",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="no pause between the steps")
    parser.add_argument("--keep", action="store_true", help="remove nothing at the end")
    parser.add_argument("--topic", metavar="NAME", type=talk.topic,
                        help="one that there is not yet (default: a new name)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """All steps, one after the other."""
    if args.token and VARIABLE not in os.environ:
        return talk.fail(f"the tour runs other commands: name the file in ${VARIABLE}", 2)
    with barco.Admin(talk.access(args)) as admin:
        try:
            brokers = admin.brokers()
        except BarcoError as error:
            talk.fail(f"no broker answers: {error.detail}")
            talk.say(HOW_TO_START)
            return 1
        topic = args.topic or f"tour-{secrets.token_hex(3)}"
        if _exists(admin, topic) or _exists(admin, topic + GRAVEYARD):
            return talk.fail(f"topic {topic} is there already, and is not the tour's to remove")
        guide = Guide(args, topic, brokers)
        with _removed(admin, guide, keep=args.keep):
            return guide.walk()


class Guide:
    """Where the tour goes: its names, and the addresses to be shown."""

    def __init__(self, args: argparse.Namespace, topic: str, brokers: dict[str, Any]) -> None:
        self.topic, self.group, self.queue = topic, f"{topic}-readers", f"{topic}-menders"
        self._yes, self._ca, self._certificate = args.yes, args.ca, args.certificate
        self.endpoint = str(talk.access(args))
        sealed = self.endpoint.startswith(HTTPS)
        host = self.endpoint.removeprefix(HTTPS).partition(",")[0].rpartition(":")[0]
        base = f"{'https' if sealed else 'http'}://{host}:"
        self.console = f"{base}{brokers['discoveryPort']}/console"
        ports = f"{base}{brokers['producerPort']}", f"{base}{brokers['consumerPort']}"
        self.steps = steps(topic, self.group, self.queue, ports)

    def walk(self) -> int:
        """Show and do every step; 1 if a line has failed."""
        self._say(f"\nThe console is at {self.console}: open it beside this window.")
        if self.endpoint != endpoint_default({}):
            self._say(f"In your shell: export BARCO_ENDPOINT={self.endpoint}")
        for number, step in enumerate(self.steps, 1):
            if not self._pause():
                return 1
            title = f"{number}/{len(self.steps)}  {step.title}"
            self._say(f"\n{bold(title)}\n{folded(step.words)}")
            if not self._do(step):
                return 1
        self._say(
            f"\n{bold('That was all.')} Where to go on: barco --help, docs/api.md, "
            "and GET /openapi.json."
        )
        return 0

    def _do(self, step: Sight) -> bool:
        for number, line in enumerate(step.lines):
            self._say(f"\n{bold('$ ' + line)}")
            code = self._shell(line)
            if code != (1 if number in step.refused else 0):
                talk.fail(f"that ended with exit code {code}: the tour ends here")
                return False
        for line in step.http:
            self._say(f"\nBy HTTP: {line}")
        self._say(f"\nIn the console: {self.console}#{step.console}")
        return True

    def _shell(self, line: str) -> int:
        program = _SHELL.format(python=sys.executable, line=line)
        environment = {**os.environ, "BARCO_ENDPOINT": self.endpoint, "BARCO_CA": self._ca}
        environment["BARCO_CERTIFICATE"] = self._certificate
        done = subprocess.run(
            ["sh", "-c", program], env=environment, stdin=subprocess.DEVNULL,
            timeout=LINE_SECONDS_MAX, check=False,
        )  # fmt: skip
        return done.returncode

    def _pause(self) -> bool:
        if self._yes:
            return True
        try:
            input("\n[Enter] goes on, Ctrl-C ends the tour. ")
        except EOFError:
            talk.fail("nobody is at a terminal: say --yes", 2)
            return False
        return True

    def _say(self, text: str) -> None:
        print(text, flush=True)


@contextmanager
def _removed(admin: "barco.Admin", guide: Guide, *, keep: bool) -> Iterator[None]:
    """At the end nothing of the tour is left, however it ended."""
    try:
        yield
    finally:
        topics, groups = (guide.topic, guide.topic + GRAVEYARD), (guide.group, guide.queue)
        names = f"topics {' and '.join(topics)}, groups {' and '.join(groups)}"
        if keep:
            print(f"\nKept: {names}.", flush=True)
        else:
            for group in groups:
                _gone(admin.delete_group, group)
            for topic in topics:
                _gone(admin.delete_topic, topic)
            print(f"\nRemoved: {names}.", flush=True)


def _gone(remove: Any, name: str) -> None:
    try:
        remove(name)
    except NotFoundError:
        pass  # The tour did not come so far.
    except BarcoError as error:
        talk.fail(f"{name} is still there: {error.detail}")


def _exists(admin: "barco.Admin", topic: str) -> bool:
    try:
        admin.topic(topic)
    except NotFoundError:
        return False
    return True


def folded(text: str) -> str:
    """For the width of the terminal."""
    return textwrap.fill(text, min(WIDTH_MAX, shutil.get_terminal_size().columns))


def bold(text: str) -> str:
    """On a terminal."""
    return f"\x1b[1m{text}\x1b[0m" if talk.colours() else text
