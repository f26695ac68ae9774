"""`python -m barco`, the same as the command `barco`."""

import sys

from barco.cli import main

if __name__ == "__main__":
    sys.exit(main())
