"""What do ten consoles cost a broker? `python -m bench.consoles`; needs the extra `look`
(playwright) and Chromium.

A headless Chromium opens one page of the console, and what it asks for in some seconds is noted:
paths, headers, when; streams that stay open as well. Ten clients then ask for the same at the same
pace, each a little later than the one before, for ten browsers would cost this machine more than
all that is measured. The CPU time of the broker's processes is compared with as many seconds
without them: it hardly depends on what else the machine does. Bar: 2 % of a core for the broker
that serves the page, one alone or one of a ring of three.
"""

import argparse
import http.client
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright

import barco
from bench import servers
from bench.machine import children, cpu_seconds

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from cluster import LocalCluster

CORE_SHARE_MAX = 0.02
GROUPS, EVENTS = 10, 2_000
PERIOD_SECONDS = 10.0
"""What a page asks for is noted for so long: five looks, in which each group comes up once."""
SETTLE_SECONDS = 5.0
"""Pages are loaded, and what a load costs is over."""
PAGES = {
    "ring": "console#ring",
    "topics": "console#topics",
    "follow": "console#topic/t?from=newest&n=50&slice=all&live=1",
    "groups": "console#groups",
    "group": "console#group/g0",
    "jobs": "console#jobs",
    "audit": "console#audit",
    "listen": "console/listen.html#t",
}
HOSTS = ("127.0.8.1", "127.0.8.2", "127.0.8.3")


class Asked(NamedTuple):
    """One request."""

    at: float
    path: str
    headers: dict[str, str]


class Measured(NamedTuple):
    """Brokers that run."""

    name: str
    endpoint: str
    brokers: Sequence[int]
    """Process ids of their supervisors; the first is that of the one that is looked at."""

    def seconds(self) -> list[float]:
        """CPU time so far, of each broker with all its processes."""
        return [sum(map(cpu_seconds, (pid, *children(pid)))) for pid in self.brokers]


@contextmanager
def alone() -> Iterator[Measured]:
    """One broker, two workers."""
    with servers.broker(workers=2) as broker:
        endpoint = f"127.0.0.1:{broker.ready['ports']['discovery']}"
        yield Measured("one broker", endpoint, [broker.supervisor])


@contextmanager
def three() -> Iterator[Measured]:
    """A ring of three, a worker of three processes each."""
    with tempfile.TemporaryDirectory(prefix="barco-consoles-") as directory:
        cluster = LocalCluster(Path(directory), HOSTS, tied=True)
        cluster.write()
        try:
            pids = [cluster.start(ordinal) for ordinal in range(len(HOSTS))]
            cluster.wait_ready()
            cluster.wait_in_sync(0)
            yield Measured("three brokers", cluster.endpoints[0], pids)
        finally:
            cluster.stop()


def fill(endpoint: str) -> None:
    """A topic, and groups that are behind in it."""
    with barco.Producer(endpoint) as producer:
        for number in range(EVENTS):
            producer.send("t", json.dumps({"n": number}).encode(), key=str(number % 100).encode())
    for number in range(GROUPS):
        with barco.Consumer("t", group=f"g{number}", start="earliest", endpoint=endpoint) as one:
            one.poll(2.0)


class Pattern(NamedTuple):
    """What a page asks for."""

    asked: Sequence[Asked]
    """In PERIOD_SECONDS, again and again."""
    streams: Sequence[Asked]
    """Open all the time."""


def noted(browser: Browser, url: str) -> Pattern:
    """What a page asks for, once it is loaded."""
    page = browser.new_page()
    seen: list[tuple[float, str, dict[str, str]]] = []
    page.on("request", lambda one: seen.append((time.monotonic(), one.url, one.headers)))
    page.goto(url)
    page.wait_for_timeout(SETTLE_SECONDS * 1000)
    began = time.monotonic()
    page.wait_for_timeout(PERIOD_SECONDS * 1000)  # Not sleep: requests are to be heard of.
    page.close()
    base = url[: url.index("/console")]
    all_ = [Asked(at - began, url.removeprefix(base), headers) for at, url, headers in seen]
    streams = [each for each in all_ if each.headers.get("accept") == "text/event-stream"]
    asked = [each for each in all_ if 0 <= each.at < PERIOD_SECONDS and each not in streams]
    return Pattern(asked, streams)


class Client(threading.Thread):
    """One window: it asks for what a page has asked for, until it is told to end."""

    def __init__(self, endpoint: str, pattern: Pattern, late: float) -> None:
        super().__init__()
        self._endpoint, self._pattern, self._late = endpoint, pattern, late
        self.ended = threading.Event()
        self.answers = 0
        self.wrong = ""

    def run(self) -> None:
        """Streams are opened and nothing of them is read: these events do not fill a socket."""
        streams = [self._open() for _ in self._pattern.streams]
        for stream, asked in zip(streams, self._pattern.streams, strict=True):
            stream.request("GET", asked.path, headers=asked.headers)
            if (status := stream.getresponse().status) != 200:
                self.wrong = f"{asked.path}: {status}"
        link, began = self._open(), time.monotonic() + self._late
        while not self.ended.is_set():
            for asked in self._pattern.asked:
                if self.ended.wait(max(0.0, began + asked.at - time.monotonic())):
                    break
                link.request("GET", asked.path, headers=asked.headers)
                answer = link.getresponse()
                answer.read()
                if answer.status not in (200, 204):  # 204: nothing more is there to be read.
                    self.wrong = f"{asked.path}: {answer.status}"
                self.answers += 1
            began += PERIOD_SECONDS
            self.ended.wait(max(0.0, began - time.monotonic()))
        for each in (link, *streams):
            each.close()

    def _open(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._endpoint, timeout=60)


def look(measured: Measured, page: str, pattern: Pattern, count: int, seconds: float) -> bool:
    """Prints a line; whether the bar passed."""
    none = over(measured, seconds)
    every = PERIOD_SECONDS / count
    clients = [Client(measured.endpoint, pattern, number * every) for number in range(count)]
    for each in clients:
        each.start()
    time.sleep(PERIOD_SECONDS + SETTLE_SECONDS)
    before = sum(each.answers for each in clients)
    found = over(measured, seconds)
    asked = sum(each.answers for each in clients) - before
    for each in clients:
        each.ended.set()
    for each in clients:
        each.join()
        if each.wrong:
            raise SystemExit(f"consoles: {each.wrong}")
    more = [one - other for one, other in zip(found, none, strict=True)]
    print(
        f"{measured.name}, {count} x {page}: {more[0]:.2%} of a core"
        + "".join(f", {each:.2%} at another" for each in more[1:])
        + f"; {none[0]:.2%} without; {asked / seconds:.1f} requests/s"
        + (f", {count * len(pattern.streams)} streams" if pattern.streams else ""),
        flush=True,
    )
    return more[0] <= CORE_SHARE_MAX and asked + len(pattern.streams) > 0


def over(measured: Measured, seconds: float) -> list[float]:
    """Shares of a core while that time goes by."""
    before, began = measured.seconds(), time.monotonic()
    time.sleep(seconds)
    after, took = measured.seconds(), time.monotonic() - began
    return [(late - early) / took for early, late in zip(before, after, strict=True)]


def main() -> int:
    """0: every bar passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--consoles", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--page", choices=PAGES, action="append", help="default: all of them")
    parser.add_argument("--of", choices=("one", "three"), help="default: both")
    args = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        print("consoles: needs Chromium (Debian: apt-get install chromium)", file=sys.stderr)
        return 2
    passed = True
    for name, kind in (("one", alone), ("three", three)):
        if args.of not in (None, name):
            continue
        with kind() as measured:
            fill(measured.endpoint)  # Before: playwright's loop takes this thread.
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=program)
                base = f"http://{measured.endpoint}"
                pages = args.page or list(PAGES)
                patterns = {page: noted(browser, f"{base}/{PAGES[page]}") for page in pages}
                browser.close()
            for page, pattern in patterns.items():
                passed &= look(measured, page, pattern, args.consoles, args.seconds)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
