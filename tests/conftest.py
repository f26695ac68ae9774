"""Makes `reference` importable: behind everything else, for tests/barco is not barco."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
