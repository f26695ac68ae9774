"""`make demo`, as a person and as CI runs it; the half on Spark: tests/spark/test_write.py."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import barco

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "demo.py"


def demo(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--dir", str(directory), "--no-spark", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.timeout(300)
def test_the_demo(tmp_path: Path) -> None:
    try:
        shown = demo(tmp_path)
        for part in ("336,776", "4,043 of 4,043", "make demo-stop", "consumer 2"):
            assert part in shown
        # What the console shows, at the addresses that are told.
        endpoint = re.search(r"http://(127\S+)/console#ring", shown)[1]
        for page in ("group/behind", "topic/boarding.dead", "topic/greetings?live=1"):
            assert f"http://{endpoint}/console#{page}\n" in shown
        with barco.Admin(endpoint) as admin:
            lag = sum(each["lag"] for each in admin.group("behind")["positions"])
            assert 0 < lag < 336_776
        (letter,) = barco.read("boarding.dead", endpoint)
        assert dict(letter.headers)["barco-dead-reason"] == b"no aircraft is known for this flight"
        assert [each.key for each in barco.read("greetings", endpoint)] == [b"demo"]
        pid = int((tmp_path / "broker.pid").read_text())
        os.kill(pid, 0)
        again = demo(tmp_path, "--stop-after")
        assert "stopped the broker of the previous run" in again
        assert "exit code 0" in again
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    finally:
        demo(tmp_path, "--stop")
    assert not (tmp_path / "broker.pid").exists()
