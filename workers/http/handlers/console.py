"""The console: its page, and what it shows of all brokers together.

The page asks the public API and nothing else. It is served to anybody, for it says nothing; what it
shows needs a user's token where the broker asks for one.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barco.console import files
from barco.errors import BarcoError, NotFoundError
from barco.model.health import health_of
from barco.model.ranges import process_of
from barco.workers.http.base.context import Context
from barco.workers.http.base.messages import Request, Response, json_response, parse_number
from barco.workers.http.handlers.status import Status
from barco.workers.process.hour import AMOUNTS, RATES, STEP_SECONDS
from barco.workers.process.metrics import GAUGES
from barco.workers.process.stages import STAGES, added, quantile

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""No byte from anywhere else, no script in a page, no frame around it."""

_TIMEOUT_S = 1.0

_SHOWN = (
    "events", "value_bytes", "bytes_out", "requests", "connections", "process_cpu_seconds",
    "process_resident_bytes", "storage_free_bytes", "replication_groups_behind", "queued_bytes",
    "long_polls_waiting", "over_quota", "problems", "storage_scrub_bytes",
)  # fmt: skip
"""What is told of a broker, by its name among the metrics."""


class Console:
    """Handlers of the page, of figures and of health."""

    def __init__(self, context: Context, status: Status) -> None:
        self._context, self._status = context, status
        self._files = _marked(files())

    async def home(self, request: Request) -> Response:
        """Who types an address into a browser wants to see something."""
        return Response(302, b"", (("Location", "/console"), ("Cache-Control", "no-store")))

    async def page(self, request: Request) -> Response:
        """The page itself."""
        return self._file("index.html", request)

    async def file(self, request: Request) -> Response:
        """What the page is made of."""
        return self._file(request.variables["file"] or "index.html", request)  # "/console/"

    def _file(self, name: str, request: Request) -> Response:
        found = self._files.get(name)
        if found is None:
            raise NotFoundError("The console has no such file.")
        kind, mark, body = found
        headers = (
            ("Content-Type", kind),
            ("Content-Security-Policy", POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-cache"),
            ("ETag", mark),
        )
        if mark in (request.header("if-none-match") or ""):
            return Response(304, b"", headers)
        return Response(200, body, headers)

    async def health(self, request: Request) -> Response:
        """How the cluster is, in words, as this broker sees it."""
        status, topology = await asyncio.gather(self._status.told(), self._status.ring(copies=True))
        name = self._context.service.neighbours.host(self._context.options.ordinal)
        found = health_of({f"broker {self._context.options.ordinal} ({name})": status}, topology)
        return json_response(
            {"headline": found.headline, "wrong": found.wrong, "notes": found.notes}
        )

    async def figures(self, request: Request) -> Response:
        """A few figures of each broker, which its processes are asked for."""
        context = self._context
        answers = await context.siblings.broadcast("stats", context.every_process(), _TIMEOUT_S)
        brokers: dict[int, dict[str, Any]] = {}
        counts: dict[int, dict[str, list[int]]] = {}
        for peer, answer in answers.items():
            ordinal = process_of(peer)[0]
            broker = brokers.setdefault(
                ordinal, {"ordinal": ordinal, "workers": 0, "silent": 0, "figures": {}}
            )
            if isinstance(answer, BarcoError):
                broker["silent"] += 1
                continue
            broker["workers"] += 1
            _add(broker["figures"], answer)
            _add_stages(counts.setdefault(ordinal, {}), answer)
        for number, broker in brokers.items():
            broker["stages"] = _told(counts.get(number, {}))
        body = {
            "at": self._context.service.wall_us(),
            "brokers": [brokers[ordinal] for ordinal in sorted(brokers)],
            "stages": _told_of_all(counts.values()),
        }
        return json_response(body)

    async def hour(self, request: Request) -> Response:
        """How the figures were in the last hour, of one broker or of all."""
        context = self._context
        asked = context.every_process()
        if (given := request.value("broker")) is not None:
            ordinal = parse_number("broker", given)
            asked = {peer: args for peer, args in asked.items() if process_of(peer)[0] == ordinal}
            if not asked:
                raise NotFoundError(f"There is no broker {ordinal}.")
        answers = await context.siblings.broadcast("hour", asked, _TIMEOUT_S)
        by_step: dict[int, dict[int, list[Sequence[float | None]]]] = {}
        for peer, answer in answers.items():
            await asyncio.sleep(0)  # Of many brokers each has a hundred steps.
            for number, *step in () if isinstance(answer, BarcoError) else answer:
                by_step.setdefault(number, {}).setdefault(process_of(peer)[0], []).append(step)
        silent = sum(isinstance(answer, BarcoError) for answer in answers.values())
        return json_response(_of_steps(by_step) | {"silent": silent})


def _of_steps(by_step: Mapping[int, Mapping[int, list[Sequence[float | None]]]]) -> dict[str, Any]:
    """By step and broker what processes say: summed up, but for the disk that a broker's share, and
    of stages the longest."""
    names = (*RATES, *AMOUNTS)
    figures: dict[str, list[float]] = {name: [] for name in names}
    stages: dict[str, list[float | None]] = {name: [] for name in STAGES}
    for _, brokers in sorted(by_step.items()):
        for at, name in enumerate(names):
            gauge = GAUGES.get(name)
            one = max if gauge is not None and gauge.shared else sum
            values = ([each[at] or 0 for each in steps] for steps in brokers.values())
            figures[name].append(round(sum(map(one, values)), 3))
        for at, name in enumerate(STAGES, len(names)):
            known = [each[at] for steps in brokers.values() for each in steps]
            stages[name].append(max((each for each in known if each is not None), default=None))
    return {
        "stepSeconds": STEP_SECONDS,
        "at": [number * STEP_SECONDS * 1_000_000 for number in sorted(by_step)],
        "figures": figures,
        "stages": stages,
    }


def _add(figures: dict[str, float], answer: Mapping[str, Any]) -> None:
    """What one process says; a figure that all share is not added up."""
    for name in _SHOWN:
        value = answer.get(name)
        if name == "events" and isinstance(value, int):
            value -= answer.get("events_followed", 0)  # Each event once, at its leader.
        if not isinstance(value, int | float):
            continue
        gauge = GAUGES.get(name)
        if gauge is not None and gauge.shared:
            figures[name] = max(figures.get(name, value), value)
        else:
            figures[name] = figures.get(name, 0) + value


def _add_stages(counts: dict[str, list[int]], answer: Mapping[str, Any]) -> None:
    """How long each stage of a produce has taken of late, as one process says."""
    for name, (_, more) in answer.get("stages_recent", {}).items():
        counts[name] = added((counts.get(name, ()), more))


def _told(counts: Mapping[str, list[int]]) -> dict[str, dict[str, float | None]]:
    """By stage in the order in which they are gone through."""
    return {
        name: {
            "count": sum(counts[name]),
            "p50": quantile(counts[name], 0.5),
            "p99": quantile(counts[name], 0.99),
        }
        for name in STAGES
        if name in counts
    }


def _told_of_all(
    counts: Iterable[Mapping[str, list[int]]],
) -> dict[str, dict[str, float | None]]:
    known = list(counts)
    names = {name for each in known for name in each}
    return _told({name: added(each.get(name, ()) for each in known) for name in names})


def _marked(files: Mapping[str, bytes]) -> dict[str, tuple[str, str, bytes]]:
    """By name: kind, ETag, content."""
    found = {}
    for name, content in files.items():
        mark = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        found[name] = (KINDS[name[name.rindex(".") :]], mark, content)
    return found
