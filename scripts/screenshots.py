#!/usr/bin/env python3
"""`make screenshots`: the console as headless Chromium shows it, in docs/images.

    scripts/screenshots.py              three brokers, events, `barco tour`, a picture of each page
    scripts/screenshots.py --only dead  those whose names begin so
    scripts/screenshots.py --to DIR     elsewhere

Three brokers on addresses of their own get events all the while and what `barco tour` leaves; each
page is open for a while before its picture is taken, as charts begin when it is opened. axe looks
at each page as well, and what it finds is an error, as is whatever the browser complains of.
"""

import argparse
import contextlib
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from axe_playwright_python.sync_playwright import Axe
from cluster import LocalCluster
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import barco

ROOT = Path(__file__).resolve().parents[1]
HOSTS = tuple(f"127.0.9.{number}" for number in (1, 2, 3))
BYTES_MAX = 80 * 1000
COLOURS = (128, 64, 32, 16)
"""Of a picture: as many of these as it may have."""
OPEN_SECONDS = 60.0
DOWN_SECONDS = 12.0
RATE = 150
WIDE, PHONE = (1280, 800), (390, 844)
CITIES = ("bern", "cork", "gent", "lund", "oslo", "pisa", "riga", "york")


class Shot(NamedTuple):
    """One picture."""

    name: str
    place: str
    """What is behind the host of the console's address."""
    size: tuple[int, int] = WIDE
    dark: bool = False
    whole: bool = False
    """All of the page, however long it is."""
    opened: str = ""
    """The summary that is opened before."""


SHOTS = (
    Shot("ring", "console#ring", (1280, 1000)),
    Shot("ring-dark", "console#ring", (1280, 1000), dark=True),
    Shot("ring-phone", "console#ring", PHONE, dark=True, whole=True),
    Shot("topics", "console#topics", (1280, 480)),
    Shot("topic", "console#topic/weather?from=newest&n=20&slice=all&live=1", (1280, 720)),
    Shot("topic-phone", "console#topic/weather?from=newest&n=20&slice=all&live=1", PHONE),
    Shot("groups", "console#groups", (1280, 480)),
    Shot("lag", "console#group/reports", (1280, 720)),
    Shot("dead", "console#topic/doors.dead", (1280, 560), dark=True),
    Shot("listen", "console/listen.html#weather", (1280, 480)),
)
DOWN = Shot("ring-down", "console#ring", (1280, 1000))
"""Taken when one of the three has been killed."""


def main() -> int:
    """0: all pictures are there, and nobody complained."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--only", default="", help="pictures whose names begin so")
    parser.add_argument("--seconds", type=float, default=OPEN_SECONDS, help="pages are open before")
    args = parser.parse_args()
    args.to.mkdir(parents=True, exist_ok=True)
    wanted = [each for each in SHOTS if each.name.startswith(args.only)]
    with ring() as cluster, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium())
        complaints = take_all(cluster, browser, wanted, args.to, args.seconds)
        if DOWN.name.startswith(args.only):
            cluster.kill(1)
            complaints += take_all(cluster, browser, [DOWN], args.to, DOWN_SECONDS)
        browser.close()
    for each in complaints:
        print(f"screenshots: {each}", file=sys.stderr)
    return 1 if complaints else 0


def chromium() -> str:
    """The one that is installed: none is fetched."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    raise SystemExit("screenshots: needs Chromium (Debian: apt-get install chromium)")


# --- What is to be seen ---------------------------------------------------------------------------


@contextlib.contextmanager
def ring() -> Iterator[LocalCluster]:
    """Three brokers that are used: events come, a group is behind, a queue gave one up."""
    with tempfile.TemporaryDirectory(prefix="barco-screenshots-") as directory:
        cluster = LocalCluster(Path(directory), HOSTS, tied=True)
        cluster.write()
        ended = threading.Event()
        writer = threading.Thread(target=keep_writing, args=(cluster.endpoints, ended))
        try:
            for ordinal in range(len(HOSTS)):
                cluster.start(ordinal)
            cluster.wait_ready()
            cluster.wait_in_sync(0)
            writer.start()
            tour(cluster.endpoints[0])
            fall_behind(cluster.endpoints[0])
            yield cluster
        finally:
            ended.set()
            if writer.ident is not None:
                writer.join()
            cluster.stop()


def keep_writing(endpoints: list[str], ended: threading.Event) -> None:
    """Some events a second, of three topics; a broker that dies stops nobody."""
    with barco.Producer(endpoints) as producer:
        for number in itertools.count():
            if ended.wait(1 / RATE):
                return
            city = CITIES[number % len(CITIES)]
            told = {"city": city, "temp": 14 + number % 17, "wind": number * 7 % 31}
            topic = ("weather", "weather", "orders", "clicks")[number % 4]
            producer.send(topic, json.dumps(told).encode(), key=city.encode())


def tour(endpoint: str) -> None:
    """Everything it makes is kept: topics doors and doors.dead, a group, a queue."""
    command = [sys.executable, "-P", "-m", "barco", "tour", "--yes", "--keep", "--topic", "doors"]
    subprocess.run(
        command, check=True, capture_output=True, timeout=600, stdin=subprocess.DEVNULL,
        env={**os.environ, "BARCO_ENDPOINT": endpoint},
    )  # fmt: skip


def fall_behind(endpoint: str) -> None:
    """A group that read once, and has a growing lag from then on."""
    with barco.Consumer("orders", group="reports", start="earliest", endpoint=endpoint) as reader:
        for _ in range(8):
            reader.poll(2.0)


# --- Pictures -------------------------------------------------------------------------------------


def take_all(
    cluster: LocalCluster, browser: Browser, shots: list[Shot], to: Path, seconds: float
) -> list[str]:
    """All pages are opened, stay open for a while, and are taken; what was wrong."""
    wrong: list[str] = []
    pages = [(shot, opened(browser, cluster.endpoints[0], shot, wrong)) for shot in shots]
    time.sleep(seconds)
    for shot, page in pages:
        if shot.opened:
            page.get_by_text(shot.opened, exact=True).click()
        keep(page.screenshot(full_page=shot.whole), to / f"{shot.name}.png")
        found: dict[str, Any] = Axe().run(page).response
        wrong += [
            f"{shot.name}: axe: {each['id']}: {each['help']} {each['nodes'][0]['target']}"
            for each in found["violations"]
        ]
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if overflow > 0:
            wrong.append(f"{shot.name}: {overflow} pixels wider than the window")
        page.context.close()
    return wrong


def opened(browser: Browser, endpoint: str, shot: Shot, wrong: list[str]) -> Page:
    """A page of its own, with nothing kept from others."""
    width, height = shot.size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if shot.dark else "light",
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
    )
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(f"{shot.name}: {error}"))
    page.on("console", lambda said: wrong.append(f"{shot.name}: {said.text}")
            if said.type == "error" else None)  # fmt: skip
    page.goto(f"http://{endpoint}/{shot.place}")
    return page


def keep(png: bytes, path: Path) -> None:
    """With so few colours that it is small."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    for colours in COLOURS:
        out = io.BytesIO()
        few = picture.quantize(colours, dither=Image.Dither.NONE)
        few.save(out, "PNG", optimize=True)
        if out.tell() <= BYTES_MAX:
            break
    else:
        raise SystemExit(f"screenshots: {path} has {out.tell()} bytes")
    path.write_bytes(out.getvalue())
    print(f"{path}: {picture.width} x {picture.height}, {colours} colours, {out.tell()} bytes")


if __name__ == "__main__":
    sys.exit(main())
