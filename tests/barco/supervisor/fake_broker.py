"""`barco serve` with fake workers, and with limits that a test can wait for (BARCO_FAKE_LIMITS)."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from barco import limits
from barco.cli import main
from barco.cli.commands import serve
from barco.supervisor.broker import run
from barco.supervisor.children import starts
from barco.supervisor.processes import ReadyBroker
from barco.supervisor.sources.plan import ServePlan

WORKER = Path(__file__).with_name("fake_worker.py")

for name, value in json.loads(os.environ.pop("BARCO_FAKE_LIMITS", "{}")).items():
    setattr(limits, name, value)


def run_with_fakes(plan: ServePlan, on_ready: Callable[[ReadyBroker], None]) -> int:
    """By the fork server, as workers are started; or as programs."""
    command = (sys.executable, "-P", str(WORKER))
    if "BARCO_FAKE_PROGRAMS" not in os.environ:
        sys.path.insert(0, str(WORKER.parent))
        starts.COMMAND, starts.ENTRY = command, WORKER.stem  # type: ignore[attr-defined]
    return run(replace(plan, command=command), on_ready)


if __name__ == "__main__":
    serve.run_broker = run_with_fakes
    sys.exit(main(["serve", *sys.argv[1:]]))
