"""Rounds, rows and the table: how single runs become the figures of the issue."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bench import machine, page
from bench.load import Load, median
from bench.machine import BUILD

RESULTS = BUILD / "results.json"
OTHERS_MAX = 0.15  # The kernel's block layer takes up to about a tenth under full writing.


@dataclass(frozen=True, slots=True)
class Settings:
    """How long and how often; from the environment, which run.py sets from its options."""

    rounds: int = int(os.environ.get("BARCO_BENCH_ROUNDS") or 7)
    seconds: float = float(os.environ.get("BARCO_BENCH_SECONDS") or 2)
    warmup: float = float(os.environ.get("BARCO_BENCH_WARMUP") or 0.5)
    recovery_gib: float = float(os.environ.get("BARCO_BENCH_RECOVERY_GIB") or 10)
    replay_gib: float = float(os.environ.get("BARCO_BENCH_REPLAY_GIB") or 2)
    pressure_seconds: float = float(os.environ.get("BARCO_BENCH_PRESSURE_SECONDS") or 60)
    generations: int = int(os.environ.get("BARCO_BENCH_GENERATIONS") or 10_000)
    latency_samples: int = int(os.environ.get("BARCO_BENCH_LATENCY_SAMPLES") or 400)

    @property
    def window(self) -> dict[str, Any]:
        """The options of a timed run."""
        return {"seconds": self.seconds, "warmup": self.warmup}


SETTINGS = Settings()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what is measured and the bar it has to pass."""

    id: str
    what: str
    unit: str
    bar: float
    at_most: bool = False
    decimals: int = 0

    def passes(self, value: float) -> bool:
        """Whether a figure is on the right side of the bar."""
        return value <= self.bar if self.at_most else value >= self.bar

    def show(self, value: float) -> str:
        """A figure in this row's unit."""
        return f"{value:,.{self.decimals}f} {self.unit}".rstrip()


ROWS = (
    Row("single", "single 1 KiB events, 64 connections: server CPU", "µs/event", 10, True, 2),
    Row("nginx", "… requests per busy core against nginx `return 204`", "x", 1.2, False, 2),
    Row("pipelined", "the same, 16 requests pipelined", "events/s/core", 400_000),
    Row("ndjson-64k", "NDJSON bodies of 64 KiB", "MB/s/core", 650),
    Row("ndjson-256k", "NDJSON bodies of 256 KiB", "MB/s/core", 650),
    Row("ndjson-1m", "NDJSON bodies of 1 MiB", "MB/s/core", 650),
    Row("keyed-lines", "NDJSON lines with a key each against none, MB/s/core", "x", 0.8, False, 2),
    Row("keyed-field", "… with keyField=", "x", 0.8, False, 2),
    Row("shippers-bulk", "Elasticsearch's _bulk against NDJSON, MB/s/core", "x", 0.3, False, 2),
    Row("shippers-hec", "… Splunk's event collector", "x", 0.3, False, 2),
    Row("shippers-otlp", "… OpenTelemetry's logs as protobuf", "x", 0.3, False, 2),
    Row("shippers-bulk-peer", "_bulk against Fluent Bit's own source of it", "x", 2, False, 2),
    Row("shippers-hec-peer", "… Splunk's event collector", "x", 2, False, 2),
    Row("shippers-otlp-peer", "… OpenTelemetry's logs as protobuf", "x", 2, False, 2),
    Row("keys", "every event its own key against no key, single", "x", 0.9, False, 2),
    Row("keys-pipelined", "… 16 pipelined", "x", 0.9, False, 2),
    Row("topics", "1,000 topics against 1 topic, single", "x", 0.6, False, 2),
    Row("topics-pipelined", "… 16 pipelined", "x", 0.6, False, 2),
    Row("access", "each request shows a token against none, single", "x", 0.97, False, 2),
    Row("access-quota", "… of a user with a quota of everything", "x", 0.97, False, 2),
    Row("redis", "redis XADD, appendfsync always, 50 x 16: events/s", "x", 3, False, 2),
    Row("longpoll-p50", "produce until a waiting long poll has it, p50", "ms", 2, True, 2),
    Row("longpoll-p99", "… p99", "ms", 10, True, 2),
    Row(
        "queue",
        "queue: lease and ack of 100 1 KiB events against polls of as many",
        "x",
        0.4,
        False,
        2,
    ),
    Row("queue-single", "… leases of one event: server CPU", "µs/lease", 60, True, 1),
    Row(
        "queue-redis",
        "… against Redis streams' groups, appendfsync always, events/s/core",
        "x",
        2,
        False,
        2,
    ),
    Row(
        "queue-nats",
        "… against a NATS JetStream work queue, sync always, events/s/core",
        "x",
        2,
        False,
        2,
    ),
    Row(
        "ring-polls",
        "three brokers, polls through one against of each: events/s/core",
        "x",
        0.7,
        False,
        2,
    ),
    Row("ring-poll-p50", "… produce until a consumer that waits has it, p50", "ms", 3, True, 2),
    Row("ring-poll-p99", "… p99", "ms", 15, True, 2),
    Row("read-memory", "reading back stored chunks from memory", "GB/s/core", 2, False, 2),
    Row("read-disk", "… from disk against fio on the same file", "x", 0.7, False, 2),
    Row("spark-json-100", "Spark, all columns, 100 B: against spark.read.json", "x", 1.2, False, 2),
    Row("spark-json-1k", "… 1 KiB", "x", 1.2, False, 2),
    Row("spark-parquet-100", "… 100 B against spark.read.parquet", "x", 0.7, False, 2),
    Row("spark-parquet-1k", "… 1 KiB", "x", 0.7, False, 2),
    Row("spark-rows-100", "… 100 B against the same source yielding tuples", "x", 2.5, False, 2),
    Row("spark-rows-1k", "… 1 KiB", "x", 2.5, False, 2),
    Row("spark-three-100", "key, value, offset, 100 B, against parquet", "x", 1.0, False, 2),
    Row("spark-three-1k", "… 1 KiB", "x", 1.0, False, 2),
    Row("spark-value-100", "value alone against all columns, 100 B", "x", 1.5, False, 2),
    Row("spark-keys-100", "bytes sent for keys alone, 100 B", "%", 10, True, 1),
    Row("spark-broker-100", "the broker's CPU against Spark's, 100 B", "%", 10, True, 1),
    Row("spark-broker-1k", "… 1 KiB", "%", 10, True, 1),
    Row("spark-broker-value-100", "… for the value alone, 100 B", "%", 10, True, 1),
    Row("spark-broker-value-1k", "… 1 KiB", "%", 10, True, 1),
    Row("spark-shards", "two shards against one, from what each side costs", "x", 1.6, False, 2),
    Row(
        "spark-beside-100", "produce p99 beside a bulk load of 100 B events: growth", "%", 30, True
    ),
    Row("spark-beside-1k", "… 1 KiB", "%", 30, True),
    Row("spark-write-100", "df.write of 100 B rows against Parquet", "x", 0.6, False, 2),
    Row("spark-write-1k", "… of 1 KiB rows", "x", 0.6, False, 2),
    Row("memory-idle", "memory of an idle worker", "MiB", 64, True, 1),
    Row("memory-load", "memory under load above the budget, at most", "MiB", 64, True, 1),
    Row("recovery", "recovery of 10 GiB of log until ready", "s", 10, True, 2),
    Row("polar", "three brokers, keyed 1 KiB events: against PolarStreams", "x", 3, False, 2),
    Row("ring-down", "… one of three down against none: by wall time", "x", 0.7, False, 2),
    Row("ring-down-core", "… per busy core", "x", 0.7, False, 2),
    Row(
        "ring-tls",
        "… TLS among the brokers against none: NDJSON, per busy core",
        "x",
        0.8,
        False,
        2,
    ),
    Row("ring-tls-wall", "… by wall time", "x", 0.8, False, 2),
    Row("ring-tls-single", "… single 1 KiB events, per busy core", "x", 0.8, False, 2),
    Row("ring-tls-single-wall", "… by wall time", "x", 0.8, False, 2),
    Row("follower", "a follower's CPU against its leader's, NDJSON", "x", 0.25, True, 2),
    Row("follower-single", "… single 1 KiB events", "x", 0.25, True, 2),
    Row("pressure", "false fail-overs, 60 s beside as many busy loops as cores", "", 0, True),
    Row("generations", "start with 10,000 old generations", "s", 5, True, 2),
)
BY_ID = {row.id: row for row in ROWS}


@dataclass(slots=True)
class Result:
    """What was found for one row."""

    id: str
    values: list[float] = field(default_factory=list)
    note: str = ""
    missing: str = ""
    failed: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> float | None:
        """The median of the rounds."""
        return median(self.values) if self.values else None

    @property
    def verdict(self) -> str:
        """pass, FAIL, missing, or not run."""
        if self.failed:
            return "FAIL"
        if self.value is None:
            return "missing" if self.missing else "not run"
        return "pass" if BY_ID[self.id].passes(self.value) else "FAIL"


class Lab:
    """Collects the results of one session."""

    def __init__(self) -> None:
        self.results: dict[str, Result] = {}
        self.others: list[float] = []

    def record(self, row: str, values: Sequence[float], note: str = "", **details: Any) -> None:
        """The figures of a row, one a round, in its unit."""
        self.results[row] = Result(BY_ID[row].id, list(values), note, details=details)

    def missing(self, row: str, why: str) -> None:
        """What a row is measured against is not here."""
        self.results[row] = Result(BY_ID[row].id, missing=why)

    @contextlib.contextmanager
    def question(self, *rows: str) -> Iterator[None]:
        """Measure these rows: if that cannot be done, or goes wrong, they say why."""
        try:
            yield
        except machine.Missing as error:
            self.results |= {row: Result(BY_ID[row].id, missing=str(error)) for row in rows}
            pytest.skip(str(error))
        except Exception as error:
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            self.results |= {row: Result(BY_ID[row].id, failed=why) for row in rows}
            raise

    def all(self) -> list[Result]:
        """One result for every row, in the order of the table."""
        return [self.results.get(row.id, Result(row.id)) for row in ROWS]

    def write(self) -> None:
        """results.json: the table, the samples behind it and the machine."""
        BUILD.mkdir(parents=True, exist_ok=True)
        rows = [
            asdict(result)
            | {"what": BY_ID[result.id].what, "unit": BY_ID[result.id].unit}
            | {"bar": BY_ID[result.id].bar, "at_most": BY_ID[result.id].at_most}
            | {"value": result.value, "verdict": result.verdict}
            for result in self.all()
        ]
        document: dict[str, Any] = {
            "machine": machine.describe(),
            "settings": asdict(SETTINGS),
            "rows": rows,
        }
        document["others"] = median(self.others) if self.others else None
        document["finished"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        RESULTS.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")

    def page(self) -> Path:
        """The rows that were measured, into the day's page of bench/results; which one."""
        about, now = machine.describe(), time.gmtime()
        path = page.page_of(time.strftime("%Y-%m-%d", now), about)
        page.update(
            path,
            [_shown(result) for result in self.all() if result.values],
            [row.id for row in ROWS],
            machine=about,
            at=time.strftime("%H:%M", now),
            settings=f"{SETTINGS.rounds} rounds of {SETTINGS.seconds:g} s",
            others=median(self.others) if self.others else None,
        )
        return path

    def table(self) -> str:
        """The table of the issue: what, the bar, median (min-max), verdict, remarks."""
        lines = [("what", "bar", "measured: median (min–max)", "", "beside it")]
        for each in map(_shown, self.all()):
            lines.append((each.what, each.bar, each.figure, each.verdict, each.note))
        widths = [max(len(line[i]) for line in lines) for i in range(4)]
        widths = [min(width, 58) for width in widths]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False))
            + ("  " + line[4] if line[4] else "")
            for line in lines
        ]
        text.insert(1, "  ".join("-" * width for width in widths))
        if self.others:
            share = max(median(self.others), 0)
            text += ["", f"Of the server's core, {share:.0%} went to others in the median run."]
            if share > OTHERS_MAX:
                text.append("This machine is busy with something else: measure again, alone.")
        return "\n".join(line.rstrip() for line in text)


def _shown(result: Result) -> page.Measured:
    """A row as text."""
    row = BY_ID[result.id]
    shown, value = result.failed or result.missing, result.value
    if value is not None:
        low, high = (f"{v:,.{row.decimals}f}" for v in _ends(result.values))
        shown = row.show(value) + (f" ({low}–{high})" if len(result.values) > 1 else "")
    bar = f"{'≤' if row.at_most else '≥'} {row.show(row.bar)}"
    return page.Measured(row.id, row.what, bar, shown, result.verdict, result.note)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


LAB = Lab()


def interleave(
    cases: Mapping[str, Callable[[], Load]], rounds: int | None = None
) -> dict[str, list[Load]]:
    """Run every case once a round, in turning order, so that a neighbour hits all alike."""
    names = list(cases)
    runs: dict[str, list[Load]] = {name: [] for name in names}
    for number in range(rounds or SETTINGS.rounds):
        at = number % len(names)
        for name in names[at:] + names[:at]:
            run = cases[name]()
            LAB.others.append(run.others)
            runs[name].append(run)
    return runs


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Ratio of each round."""
    return [a / b for a, b in zip(above, below, strict=True)]


class Meter:
    """A clock for pytest-benchmark that shows server CPU an event, not the wall time of a test.

    The rounds have been run, interleaved, before; replaying a figure advances the clock by it.
    """

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        """The timer."""
        return self.now

    def replay(self, benchmark: Any, figures: Sequence[float]) -> None:
        """Hand the figures, in seconds, to pytest-benchmark as its rounds."""
        left = iter(figures)

        def step() -> None:
            self.now += next(left)

        benchmark.pedantic(step, rounds=len(figures), iterations=1)


METER = Meter()


def report(benchmark: Any, runs: Sequence[Load]) -> None:
    """One case's rounds into pytest-benchmark: CPU an event as the figure, the rest beside it."""
    benchmark.extra_info["events_per_core_second"] = round(
        median([run.events_per_core for run in runs])
    )
    benchmark.extra_info["payload_mb_per_core_second"] = round(
        median([run.bytes_per_core for run in runs]) / 1e6, 1
    )
    benchmark.extra_info["wall_requests_per_second"] = round(
        median([run.requests / run.seconds for run in runs])
    )
    benchmark.extra_info["p50_us"] = median([run.figures["p50_us"] for run in runs])
    benchmark.extra_info["p99_us"] = median([run.figures["p99_us"] for run in runs])
    benchmark.extra_info["client_busy"] = round(median([run.client_busy for run in runs]), 2)
    benchmark.extra_info["core_busy"] = round(
        median([run.figures["core_busy_seconds"] / run.seconds for run in runs]), 2
    )
    METER.replay(benchmark, [run.cpu_per_event for run in runs])
