"""The demo's second half: Spark reads the flights from the shard endpoints, and answers a question.

When, and with whom, is a flight from New York late? The delays by carrier and hour are computed
from the broker's own files, held against the source, written as Parquet and drawn; then a streaming
query follows flights as they are produced, and writes the late ones back, each once.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import barco
from barco.spark import session

FIELDS = "id long, carrier string, hour int, dep_delay int, arr_delay int, origin string"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
}
LIVE, LATE = "departures", "late"
LIVE_FLIGHTS = 3000
LATE_MINUTES = 60
FOLLOW_SECONDS = 60.0
ONCE_SECONDS = 1.0
HOURS = range(5, 24)
CARRIER_FLIGHTS_MIN = 100
CELL_FLIGHTS_MIN = 10
"""What is drawn: fewer flights say nothing about their hour."""

Cell = tuple[str, int]
"""(carrier, hour)."""


@dataclass(frozen=True)
class Delays:
    """Of the flights of one carrier that were to leave in one hour."""

    flights: int
    departed: int
    minutes: int
    """Of delay at departure, all together; early ones count against it."""


@dataclass
class Result:
    """What the demo tells of it."""

    flights: int = 0
    cells: int = 0
    read_seconds: float = 0.0
    parquet: str = ""
    parquet_rows: int = 0
    picture: str = ""
    live: int = 0
    late: int = 0
    follow_seconds: float = 0.0


def main() -> int:
    """Run by scripts/demo.py; prints a Result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--flights", type=Path, required=True, help="the source, to compare with")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--dir", type=Path, required=True, help="where results go")
    args = parser.parse_args()
    source = source_delays(args.flights)
    spark = session("barco demo", "local[2]", SETTINGS)
    try:
        result = analyse(spark, args, source)
        follow(spark, args, result)
    finally:
        spark.stop()
    print(json.dumps(asdict(result)))
    return 0


def source_delays(path: Path) -> dict[Cell, Delays]:
    """The same sums, from the file and without Spark."""
    sums: dict[Cell, list[int]] = {}
    with path.open("rb") as lines:
        for line in lines:
            flight = json.loads(line)
            into = sums.setdefault((flight["carrier"], flight["hour"]), [0, 0, 0])
            into[0] += 1
            if flight["dep_delay"] is not None:
                into[1] += 1
                into[2] += flight["dep_delay"]
    return {cell: Delays(*each) for cell, each in sums.items()}


# --- The question ---------------------------------------------------------------------------------


def flights_of(events: DataFrame) -> DataFrame:
    """Events as flights: their values are JSON."""
    parsed = f.from_json(f.col("value").cast("string"), FIELDS).alias("flight")
    return events.select(parsed).select("flight.*")


def analyse(spark: SparkSession, args: argparse.Namespace, source: dict[Cell, Delays]) -> Result:
    """Delays by carrier and hour: from the shards, checked, to Parquet and a picture."""
    began = time.monotonic()
    # The user's schema is the projection: keys, offsets and times are not even sent.
    reader = spark.read.schema("value binary").format("barco").option("endpoints", args.endpoint)
    flights = flights_of(reader.option("subscribe", args.topic).load())
    by_cell = flights.groupBy("carrier", "hour").agg(
        f.count("*").alias("flights"),
        f.count("dep_delay").alias("departed"),
        f.coalesce(f.sum("dep_delay"), f.lit(0)).alias("minutes"),
    )
    rows = by_cell.collect()
    found = {
        (row.carrier, row.hour): Delays(row.flights, row.departed, row.minutes) for row in rows
    }
    if found != source:
        wrong = sorted(set(found.items()) ^ set(source.items()))[:3]
        raise SystemExit(f"Spark and the source do not agree: {wrong}")
    result = Result(sum(each.flights for each in found.values()), len(found))
    result.read_seconds = round(time.monotonic() - began, 2)
    result.parquet = str(args.dir / "delays.parquet")
    spark.createDataFrame(rows).coalesce(1).write.mode("overwrite").parquet(result.parquet)
    written = spark.read.parquet(result.parquet).collect()
    if sorted(written) != sorted(rows):
        raise SystemExit("the Parquet file does not hold what was written to it")
    result.parquet_rows = len(written)
    result.picture = str(args.dir / "delays.png")
    draw(found, Path(result.picture))
    return result


# --- The picture ----------------------------------------------------------------------------------

INK, PAPER, GRID = "#22313a", "#fbf9f4", "#ddd8cc"
SHADES = LinearSegmentedColormap.from_list(
    "delays", ["#2f7f86", "#8fc1b5", "#f6ecd2", "#f0b67f", "#d1495b", "#7a1e3a"]
)
NAMES = {
    "9E": "Endeavor", "AA": "American", "AS": "Alaska", "B6": "JetBlue", "DL": "Delta",
    "EV": "ExpressJet", "F9": "Frontier", "FL": "AirTran", "HA": "Hawaiian", "MQ": "Envoy",
    "OO": "SkyWest", "UA": "United", "US": "US Airways", "VX": "Virgin America",
    "WN": "Southwest", "YV": "Mesa",
}  # fmt: skip


def mean(cells: Iterable[Delays]) -> float:
    """Minutes for each flight that left; NaN if none did."""
    listed = list(cells)
    departed = sum(each.departed for each in listed)
    return sum(each.minutes for each in listed) / departed if departed else float("nan")


def draw(found: dict[Cell, Delays], path: Path) -> None:
    """A heat map of carriers and hours, and above it the day as a curve."""
    carriers = {carrier for carrier, _ in found}
    of_carrier = {c: [each for (name, _), each in found.items() if name == c] for c in carriers}
    shown = [c for c in carriers if sum(e.flights for e in of_carrier[c]) >= CARRIER_FLIGHTS_MIN]
    shown.sort(key=lambda c: mean(of_carrier[c]))
    table = np.array(
        [[mean([found[c, h]]) if (c, h) in found else np.nan for h in HOURS] for c in shown]
    )
    by_hour = [mean(each for (_, hour), each in found.items() if hour == h) for h in HOURS]
    plt.rcParams |= {"font.family": "DejaVu Sans", "text.color": INK, "axes.edgecolor": GRID}
    figure, (top, heat) = plt.subplots(
        2, 1, figsize=(12, 9), height_ratios=(1, 3.2), facecolor=PAPER, layout="constrained"
    )
    figure.get_layout_engine().set(h_pad=0.12, w_pad=0.12)
    _draw_day(top, by_hour)
    image = _draw_heat(heat, shown, table)
    bar = figure.colorbar(image, ax=heat, orientation="horizontal", shrink=0.4, aspect=40, pad=0.02)
    bar.set_label("minutes late at departure, on average", color=INK)
    bar.outline.set_visible(False)
    total = sum(each.flights for each in found.values())
    figure.suptitle(
        "Fly in the morning", x=0.02, ha="left", fontsize=25, fontweight="bold", color=INK
    )
    top.set_title(
        f"{total:,} flights out of New York in 2013: the later in the day, the later they leave",
        loc="left", fontsize=12, color=INK, pad=14,
    )  # fmt: skip
    figure.savefig(path, dpi=130, facecolor=PAPER)
    plt.close(figure)


def _draw_day(axes: Any, by_hour: list[float]) -> None:
    hours = list(HOURS)
    axes.set_facecolor(PAPER)
    axes.fill_between(hours, by_hour, color="#f0b67f", alpha=0.45, linewidth=0)
    axes.plot(hours, by_hour, color="#d1495b", linewidth=2.5, marker="o", markersize=4)
    worst = int(np.nanargmax(by_hour))
    for place, offset in ((0, (8, 10)), (worst, (-10, 8))):
        axes.annotate(
            f"{by_hour[place]:.0f} min", (hours[place], by_hour[place]), xytext=offset,
            textcoords="offset points", fontweight="bold", color=INK, fontsize=11,
        )  # fmt: skip
    axes.set_xlim(hours[0] - 0.5, hours[-1] + 0.5)
    axes.set_ylim(0, max(by_hour) * 1.3)
    axes.set_xticks([])
    axes.tick_params(colors=INK, length=0)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.spines[:].set_visible(False)
    axes.set_ylabel("all carriers", color=INK)


def _draw_heat(axes: Any, carriers: list[str], table: Any) -> Any:
    axes.set_facecolor("#efebe1")
    image = axes.imshow(table, aspect="auto", cmap=SHADES, vmin=-5, vmax=45)
    axes.set_xticks(range(len(HOURS)), [f"{hour}:00" for hour in HOURS])
    axes.set_yticks(range(len(carriers)), [NAMES.get(each, each) for each in carriers])
    axes.set_xticks(np.arange(len(HOURS) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(carriers) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color=PAPER, linewidth=2)
    axes.tick_params(which="both", colors=INK, length=0)
    axes.spines[:].set_visible(False)
    for (row, column), minutes in np.ndenumerate(table):
        if not np.isnan(minutes):
            dark = minutes > 28 or minutes < 0
            axes.text(
                column, row, f"{round(minutes)}", ha="center", va="center", fontsize=8,
                color=PAPER if dark else INK,
            )  # fmt: skip
    axes.set_xlabel("scheduled hour of departure", color=INK)
    return image


# --- As it happens --------------------------------------------------------------------------------


def follow(spark: SparkSession, args: argparse.Namespace, result: Result) -> None:
    """A query that is up while flights are produced, and writes the late ones to a topic."""
    lines = [line for _, line in zip(range(LIVE_FLIGHTS), args.flights.open("rb"), strict=False)]
    late = sorted(f["id"] for f in map(json.loads, lines) if (f["dep_delay"] or 0) >= LATE_MINUTES)
    with barco.Admin(args.endpoint) as admin:
        for topic in (LIVE, LATE):
            admin.create_topic(topic)
    events = spark.readStream.schema("key binary, value binary, timestamp timestamp").format(
        "barco"
    )
    events = events.option("endpoints", args.endpoint).option("subscribe", LIVE)
    live = events.option("startingOffsets", "earliest").load()
    minutes = f.get_json_object(f.col("value").cast("string"), "$.dep_delay").cast("int")
    query = (
        live.where(minutes >= LATE_MINUTES)
        .writeStream.format("barco")
        .option("endpoints", args.endpoint)
        .option("topic", LATE)
        .option("checkpointLocation", str(args.dir / "late.checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        with barco.Producer(args.endpoint) as producer:
            for start in range(0, len(lines), 500):
                producer.send_many(LIVE, [line.rstrip() for line in lines[start : start + 500]])
                producer.flush()
        began = time.monotonic()
        found = arrived(args.endpoint, late)
        result.follow_seconds = round(time.monotonic() - began, 2)
        if sorted(found) != late:
            raise SystemExit(f"{len(found)} late flights were written, not {len(late)}")
    finally:
        query.stop()
    result.live, result.late = len(lines), len(late)


def arrived(endpoint: str, wanted: list[int]) -> list[int]:
    """The flights in the topic of late ones, when there are as many as wanted and no more come."""
    found: list[int] = []
    until = time.monotonic() + FOLLOW_SECONDS
    with barco.Consumer(LATE, group="demo-late", endpoint=endpoint, start="earliest") as consumer:
        while len(found) < len(wanted) and time.monotonic() < until:
            found += [json.loads(event.value)["id"] for event in consumer.poll(0.5)]
        # Each once: one that came twice would come now.
        return found + [json.loads(event.value)["id"] for event in consumer.poll(ONCE_SECONDS)]


if __name__ == "__main__":
    sys.exit(main())
