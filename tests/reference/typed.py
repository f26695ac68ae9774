"""What mypy says of programs that use the library."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

OPTIONS = ("--strict", "--no-incremental", "--follow-imports=silent", "--config-file=")


def complaints(files: Iterable[Path], cache: Path) -> str:
    """Empty if all is well. In a process of its own: mypy lets its own recurse deeper, and other
    tests are about what is too deep."""
    command = [sys.executable, "-m", "mypy", *OPTIONS, f"--cache-dir={cache}", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    return "" if (done.returncode, done.stderr) == (0, "") else done.stdout + done.stderr
