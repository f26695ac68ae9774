"""Running bench/loadgen and reading what it says."""

import json
import os
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.machine import BUILD, CLIENT_CORE, ROOT, SERVER_CORE, Missing, tool

SOURCES = ROOT / "bench" / "loadgen"


class LoadFailed(Exception):
    """The load generator could not do its work, or the server refused some of it."""


@dataclass(frozen=True, slots=True)
class Load:
    """One run of the generator."""

    figures: dict[str, Any]

    @property
    def events(self) -> int:
        """Events that were acknowledged."""
        return int(self.figures["events"])

    @property
    def requests(self) -> int:
        """Requests that were answered with success."""
        return int(self.figures["requests"])

    @property
    def seconds(self) -> float:
        """Wall time that was measured."""
        return float(self.figures["seconds"])

    @property
    def cpu(self) -> float:
        """Seconds of CPU the server spent in that time."""
        return float(sum(self.figures["cpu_seconds"].values()))

    @property
    def cpu_per_request(self) -> float:
        """Server CPU seconds a request."""
        return self.cpu / max(self.requests, 1)

    @property
    def cpu_per_event(self) -> float:
        """Server CPU seconds an event."""
        return self.cpu / max(self.events, 1)

    @property
    def events_per_core(self) -> float:
        """Events a second of server CPU."""
        return self.events / max(self.cpu, 1e-9)

    @property
    def bytes_per_core(self) -> float:
        """Payload bytes sent a second of server CPU."""
        return float(self.figures["bytes"]) / max(self.cpu, 1e-9)

    @property
    def received_per_core(self) -> float:
        """Body bytes received a second of server CPU."""
        return float(self.figures["bytes_received"]) / max(self.cpu, 1e-9)

    @property
    def received_per_second(self) -> float:
        """Body bytes received a second of wall time."""
        return float(self.figures["bytes_received"]) / max(self.seconds, 1e-9)

    @property
    def client_busy(self) -> float:
        """Share of its core that the generator used; near 1 the wall figures are its own."""
        return float(self.figures["client_cpu_seconds"]) / max(self.seconds, 1e-9)

    @property
    def others(self) -> float:
        """Share of the server's core that went to anything but the server, the kernel included."""
        return float(self.figures["core_busy_seconds"] - self.cpu) / max(self.seconds, 1e-9)

    def wall(self) -> str:
        """The wall figures in a few words."""
        rate = self.requests / max(self.seconds, 1e-9)
        return f"{rate:,.0f} requests/s, p50 {self.figures['p50_us']:.0f} µs"


def build(folder: Path = SOURCES) -> Path:
    """Compile the program in a folder of bench/, named like it, if a source is newer; its path."""
    return compile_program(folder.name, sorted(folder.glob("*.c")), sorted(folder.glob("*.h")))


def compile_program(
    name: str, sources: Sequence[Path], headers: Sequence[Path] = (), flags: Sequence[str] = ()
) -> Path:
    """Compile a program into build/bench unless it is newer than all its sources; its path."""
    target = BUILD / name
    newest = max(path.stat().st_mtime for path in [*sources, *headers])
    if not target.exists() or target.stat().st_mtime < newest:
        BUILD.mkdir(parents=True, exist_ok=True)
        compiler = tool(os.environ.get("CC") or "cc")
        scratch = BUILD / f"{name}.{os.getpid()}"
        options = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-o", str(scratch)]
        subprocess.run([compiler, *options, *map(str, sources), *flags], check=True)
        scratch.replace(target)
    return target


def load(port: int, *, pids: Sequence[int] = (), check: bool = True, **options: Any) -> Load:
    """Run the generator against a port. Options are its own, with underscores for hyphens.

    A sequence repeats an option, True is a flag, False and None leave it out. Unless check is
    False, a single refused request makes the whole run worthless: LoadFailed.
    """
    arguments = ["--port", str(port), "--core", str(CLIENT_CORE)]
    given: dict[str, Any] = {"cpu_pid": list(pids), "cpu_core": SERVER_CORE} | options
    for name, value in given.items():
        values = value if isinstance(value, list | tuple) else [value]
        for item in values:
            if item is True:
                arguments.append(f"--{name.replace('_', '-')}")
            elif item is not None and item is not False:
                arguments += [f"--{name.replace('_', '-')}", str(item)]
    limit = 900 if options.get("requests") else 120 + 3 * float(options.get("seconds") or 0)
    done = subprocess.run(
        [build(), *arguments], capture_output=True, text=True, timeout=limit, check=False
    )
    try:
        figures = json.loads(done.stdout)
    except ValueError:
        raise LoadFailed(done.stderr.strip() or f"loadgen: exit {done.returncode}") from None
    if check and (done.returncode or figures["errors"] or not figures["requests"]):
        raise LoadFailed(f"{figures['errors']} refused or lost: {_reason(figures)}")
    return Load(figures)


def _reason(figures: dict[str, Any]) -> str:
    """Status line and body of the first answer that was not good, or what else went wrong."""
    head, _, body = str(figures.get("first_error", "no answers")).partition("\r\n\r\n")
    return f"{head.splitlines()[0]} {body}".strip()


def median(values: Sequence[float]) -> float:
    """The median; of no values, Missing."""
    if not values:
        raise Missing("no samples")
    return statistics.median(values)
