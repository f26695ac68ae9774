"""A harness that is killed leaves no broker behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

HARNESS = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent)]
from running import RunningBroker
broker = RunningBroker(Path(sys.argv[2]))
broker.start()
print(broker.process.pid, *broker.worker_pids(), flush=True)
sys.stdin.read()
"""


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_killed_harness_leaves_no_broker_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HARNESS, str(Path(__file__).parent), str(tmp_path / "data")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as harness:
        assert harness.stdout is not None
        pids = [int(pid) for pid in harness.stdout.readline().split()]
        assert len(pids) == 3 and all(runs(pid) for pid in pids)
        harness.send_signal(signal.SIGKILL)
        harness.wait(60)
    until = time.monotonic() + 60
    while any(runs(pid) for pid in pids):
        assert time.monotonic() < until, "a broker outlives its harness"
        time.sleep(0.05)
