#!/usr/bin/env python3
"""`make newcomer`: how long it takes from `make demo` to having seen the ring, an event as it
comes, a lag and a dead letter in the console.

    scripts/newcomer.py              make demo, and a browser that opens what it says
    scripts/newcomer.py --no-make    scripts/demo.py alone, where all is set up
    scripts/newcomer.py --in CLONE   in a fresh clone, which is then set up as well

A headless Chromium stands for the person: it opens each address as soon as the demo has printed it,
types the line that stands beside it, and waits until the page shows what was promised. A person
reads as well; for that READ_SECONDS are spent on each page. Ends with 1 if something was not to be
seen. The demo goes on meanwhile; its broker is stopped at the end.
"""

import argparse
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Error, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
READ_SECONDS = 10.0
SEEN_SECONDS = 30.0
DEMO_SECONDS = 900.0
"""Until the demo has said what there is to see: it may have to build everything."""


class Sight(NamedTuple):
    """One page, and what is to be seen there."""

    name: str
    place: str
    """What is behind the # of its address."""
    seen: str
    """A regular expression that the page's text is to match."""
    typed: str = ""
    """A regular expression of the line of the demo's output that is typed when the page is open."""


SIGHTS = (
    Sight("the ring", "ring", r"1 broker\n[\s\S]*slices"),
    Sight("a lag", r"group/\S+", r"lag\n+[1-9][0-9,]+"),
    Sight("a dead letter", r"topic/\S+\.dead", r"no aircraft is known for this flight"),
    Sight("a live event", r"topic/\S+\?live=1", r'\{"hello":1\}', r"curl -d [^\n]+\\\n[^\n]+"),
)


def main() -> int:
    """A line for each sight, with the seconds since the beginning."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--no-make", action="store_true", help="all is set up: the demo alone")
    parser.add_argument("--in", dest="root", type=Path, default=ROOT, metavar="CLONE")
    args = parser.parse_args()
    root = args.root.resolve()
    program = [sys.executable, "scripts/demo.py"] if args.no_make else ["make", "demo"]
    began = time.monotonic()
    demo = subprocess.Popen(program, cwd=root, stdout=subprocess.PIPE, text=True)
    said = Said(demo)
    try:
        missed = look(said, lambda: time.monotonic() - began)
        demo.wait(DEMO_SECONDS)
        print(
            f"newcomer: {time.monotonic() - began:6.1f} s  the demo has ended ({demo.returncode})"
        )
        return 1 if missed or demo.returncode else 0
    finally:
        subprocess.run([sys.executable, "scripts/demo.py", "--stop"], cwd=root, check=False)


class Said:
    """What the demo has printed so far."""

    def __init__(self, demo: "subprocess.Popen[str]") -> None:
        self._text, self._more = "", threading.Condition()
        assert demo.stdout is not None
        self._lines = demo.stdout
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._lines:
            print(line, end="", flush=True)
            with self._more:
                self._text += line
                self._more.notify_all()

    def until(self, pattern: str) -> str:
        """What matches, as soon as it is there."""
        with self._more:
            if not self._more.wait_for(lambda: re.search(pattern, self._text), DEMO_SECONDS):
                raise SystemExit(f"newcomer: the demo never said {pattern}")
            found = re.search(pattern, self._text)
        assert found is not None
        return found[0]


def look(said: Said, seconds: Callable[[], float]) -> bool:
    """Opens each page; whether something was not to be seen."""
    missed = False
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
        if path is None:
            raise SystemExit("newcomer: needs Chromium (Debian: apt-get install chromium)")
        browser = playwright.chromium.launch(executable_path=path)
        page = browser.new_page()
        page.goto(said.until(r"http://\S+/(?=\n)"))
        print(f"newcomer: {seconds():6.1f} s  the console is open", flush=True)
        for sight in SIGHTS:
            page.goto(said.until(rf"http://\S+/console#{sight.place}(?=\s)"))
            if sight.typed:
                page.wait_for_timeout(2000)
                line = said.until(sight.typed)
                subprocess.run(["sh", "-c", line], check=True, capture_output=True)
            there = shown(page, sight.seen)
            missed |= not there
            print(f"newcomer: {seconds():6.1f} s  {sight.name} {'seen' if there else 'NOT SEEN'}")
            page.wait_for_timeout(1000 * READ_SECONDS)
        browser.close()
    print(f"newcomer: {seconds():6.1f} s  all was looked at", flush=True)
    return missed


def shown(page: Page, pattern: str) -> bool:
    """Whether the text of the page comes to match."""
    deadline = time.monotonic() + SEEN_SECONDS
    while time.monotonic() < deadline:
        try:
            if re.search(pattern, page.inner_text("body")):
                return True
        except Error:
            pass  # The page is just being opened.
        page.wait_for_timeout(100)
    return False


if __name__ == "__main__":
    sys.exit(main())
