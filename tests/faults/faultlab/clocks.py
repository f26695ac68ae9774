"""Wall clocks that are wrong by any amount, and change while a process runs: see clock.c."""

import os
import shutil
import struct
import subprocess
from pathlib import Path

MINUTE = 60.0
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WRONG = (0.0, HOUR, -HOUR, 21 * MINUTE, 30 * DAY, -3650 * DAY)
"""Seconds."""


def why_not() -> str:
    """Why no clock can be wrong here; nothing: it can."""
    if shutil.which(os.environ.get("CC", "cc")) is None:
        return "no C compiler"
    return "something else is preloaded" if "LD_PRELOAD" in os.environ else ""


def library(directory: Path) -> Path:
    """Made where it is not there yet."""
    path = directory / "clock.so"
    if not path.exists():
        source = Path(__file__).parent / "clock.c"
        command = [os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", "-o"]
        subprocess.run([*command, str(path), str(source), "-ldl"], check=True)
    return path


class WrongClock:
    """What one broker's wall clock shows."""

    def __init__(self, directory: Path, name: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / f"clock-{name}"
        self.set(0.0)
        self.environment = {
            "LD_PRELOAD": str(library(directory)),
            "BARCO_FAULT_CLOCK": str(self._path),
        }

    def set(self, seconds: float, gone: float = 0.0) -> None:
        """It is ahead by so much from now on; and so many seconds have gone by in truth."""
        data = struct.pack("<qq", int(seconds * 1e6), int(gone * 1e6))
        with self._path.open("r+b" if self._path.exists() else "wb") as file:
            file.write(data)
