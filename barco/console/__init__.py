"""The console: a page and its files, which workers serve as they are (`workers/http/handlers`).

They ask the public API of the broker that served them, and nobody else. No build, no library.
"""

from pathlib import Path

SUFFIXES = (".html", ".js", ".css", ".svg")


def files() -> dict[str, bytes]:
    """By name."""
    here = Path(__file__).parent
    return {path.name: path.read_bytes() for path in here.iterdir() if path.suffix in SUFFIXES}
