"""Makes the in-memory twin importable for the tests of workers."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
