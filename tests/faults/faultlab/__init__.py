"""What the fault tests are made of: a broker, clients, a checker, cut disks, crash images."""

import sys
from pathlib import Path

# What all tests share is found also by the programs beside this folder. Behind everything else.
sys.path.append(str(Path(__file__).resolve().parents[2]))
