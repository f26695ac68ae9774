"""Two versions in one ring: each broker goes from an earlier one to this one, and one of them back.

The earlier one is built from git (`scripts/older.sh`) and has an environment of its own: its
processes load nothing of this one. BARCO_OLDER names another commit than OLDER.
"""

import functools
import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from faultlab.ring import Node, Ring
from faultlab.rolling import await_in_sync
from faultlab.scene import RingScene

ROOT = Path(__file__).parents[3]
OLDER = "9d03eaab9fa5"
"""What 2026-11-25 ended with: links 6 and gossip 4, as now; without users' quotas, without the
versions that /status tells, and with hellos that take no further name."""

BUILD_S = 900.0
STEPS = ("up 0", "kill", "up 1", "kill soon", "down 1", "kill", "up 1", "kill soon", "up 2", "kill")
"""Of one ring: which broker goes to this version or back; after that any is killed, when the one
before is in sync, or as soon as it is ready."""


def why_not() -> str:
    """Why there is no earlier version here."""
    commit = os.environ.get("BARCO_OLDER", OLDER)
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return "no git here, to take the earlier version from"
    asked = ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    if subprocess.run(asked, check=False, capture_output=True).returncode != 0:
        return f"git has no commit {commit} here"
    return ""


@functools.cache
def older_python() -> str:
    """The interpreter that has the earlier version; built if it was not yet."""
    commit = os.environ.get("BARCO_OLDER", OLDER)
    command = [str(ROOT / "scripts" / "older.sh"), commit]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=BUILD_S)
    return done.stdout.strip()


def begin_older(ring: Ring) -> None:
    """Before the ring is started."""
    for node in ring.nodes:
        node.python = older_python()


def checked(node: Node) -> None:
    """`barco upgrade-check` of this version, which waits until it may be restarted."""
    command = [sys.executable, "-P", "-m", "barco", "upgrade-check", "--wait", "60"]
    given = ["--config", str(node.config), "--endpoint", f"{node.host}:{node.port[1]}"]
    done = subprocess.run(
        [*command, *given], check=False, env=node.environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def change(node: Node, python: str) -> None:
    """SIGTERM, and a start with the other version."""
    checked(node)
    assert node.stop() == 0, node.log[-2000:]
    node.python = python
    node.begin()
    node.await_ready()


def kill(node: Node, settled: Node | None, seconds: float) -> None:
    """SIGKILL, when another one is in sync or at once."""
    if settled is not None:
        await_in_sync(settled)
    node.kill()
    time.sleep(seconds)
    node.begin()
    node.await_ready()


def upgrade(scene: RingScene, number: int) -> tuple[str, partial[None]]:
    """The next of STEPS."""
    what, _, which = STEPS[number % len(STEPS)].partition(" ")
    nodes = scene.ring.nodes
    if what != "kill":
        node = nodes[int(which)]
        python = sys.executable if what == "up" else older_python()
        return f"broker {node.ordinal} {what}", partial(change, node, python)
    node = scene.random.choice(nodes)
    seconds = scene.random.choice((0.0, 0.5, 1.5, 3.0))
    settled = None if which == "soon" else scene.random.choice(nodes)
    versions = "".join("new " if each.python == sys.executable else "old " for each in nodes)
    what = f"kill {node.ordinal} for {seconds} s {which}, {versions.strip()}"
    return what, partial(kill, node, settled, seconds)
