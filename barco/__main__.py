"""`barco` and `python -m barco`: Ctrl-C is quiet also while the command is still being imported."""

import importlib
import sys

INTERRUPTED = 130
"""As in barco.cli, which is not there yet when it is needed here."""


def main() -> int:
    """Run the command that the arguments name; returns its exit code."""
    try:
        # Here: it takes a while, in which Ctrl-C may come.
        return int(importlib.import_module("barco.cli").main())
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
