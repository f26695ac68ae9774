"""The package and its units under a real systemd: `make boot`. Root, debootstrap, a Debian mirror.

A Debian tree is made once (build/boot/tree), copied, and booted: systemd is process 1 of namespaces
of its own (`boot.sh`). There the package is installed, and three units are a cluster: started,
killed, hung, restarted, reloaded, upgraded, stopped, removed. Each step prints a line.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOM = ROOT / "build" / "boot"
INSIDE = "systemd,systemd-sysv,dbus,python3,curl,iproute2,procps,openssh-server,openssh-client"
MIRROR = "http://deb.debian.org/debian"
UNITS = ("a", "b", "c")
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
CONFIG = """\
[broker]
ordinal = {ordinal}
workers = 1
{more}
[cluster]
brokers = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
secret_file = "credential:secret"
[storage]
segment_bytes = 33554432
"""
CGROUPS = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")
"""Where cgroup2 is: beside the older kind, or alone."""


class Machine:
    """A Debian that was booted."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.name = tree.name
        self.host = ""
        """Its address, where it is on a network."""
        mounted = [each for each in CGROUPS if Path(each, "cgroup.controllers").exists()]
        if not mounted:
            raise SystemExit("boot: no cgroup2 is mounted here, and systemd needs one")
        words = [
            Path(__file__).with_name("boot.sh"),
            tree,
            Path(mounted[0], f"barco-{os.getpid()}-{self.name}"),
        ]
        self._console = ROOM / f"console-{self.name}"
        self._log = self._console.open("w")
        self._process = subprocess.Popen(words, stdout=self._log, stderr=self._log)
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        until("systemd is process 1", lambda: self._is_systemd(children), 30)
        self.init = children.read_text().split()[0]
        until("it has booted", lambda: self.run("systemctl", "is-system-running", ok=None).strip()
              in ("running", "degraded"), 60)  # fmt: skip

    def _is_systemd(self, children: Path) -> bool:
        if self._process.poll() is not None:
            raise SystemExit(f"boot: it ended: {self._console.read_text()[-2000:]}")
        pids = children.read_text().split()
        return bool(pids) and Path(f"/proc/{pids[0]}/comm").read_text().strip() == "systemd"

    def run(self, *words: str, ok: int | None = 0, given: str = "", **environment: str) -> str:
        """What a command there prints. ok: how it has to end; None: in any way."""
        enter = ["nsenter", "-t", self.init, *[f"-{space}" for space in "pmnuiCrw"]]
        assigned = [f"{name}={value}" for name, value in environment.items()]
        done = subprocess.run(
            [*enter, "env", *assigned, *words],
            input=given, capture_output=True, text=True, timeout=150, check=False,
        )  # fmt: skip
        if ok is not None and done.returncode != ok:
            said = f"{' '.join(words)} ended with {done.returncode}: {done.stdout}{done.stderr}"
            raise SystemExit(f"boot: {said}")
        return done.stdout + done.stderr

    def unit(self, name: str, what: str) -> str:
        """A property of barco@NAME."""
        return self.run("systemctl", "show", "-P", what, f"barco@{name}").strip()

    def end(self) -> None:
        """Power off, the hard way."""
        self._process.kill()
        self._process.wait()
        self._log.close()


def until(what: str, holds: Callable[[], bool], seconds: float) -> None:
    """Wait for something, and say how long it took."""
    begin = time.monotonic()
    while not holds():
        if time.monotonic() - begin > seconds:
            raise SystemExit(f"boot: not within {seconds:.0f} s: {what}")
        time.sleep(0.2)
    print(f"  {time.monotonic() - begin:5.1f} s  {what}", flush=True)


def tree(name: str) -> Path:
    """A fresh copy of a Debian, which is made once."""
    base, copy = ROOM / "tree", ROOM / name
    if not all((base / each).exists() for each in ("usr/lib/systemd/systemd", "usr/sbin/sshd")):
        if shutil.which("debootstrap") is None:
            raise SystemExit("boot: no debootstrap here: apt-get install debootstrap")
        shutil.rmtree(base, ignore_errors=True)
        words = ["debootstrap", "--variant=minbase", f"--include={INSIDE}", "bookworm", str(base)]
        subprocess.run([*words, MIRROR], check=True, stdout=sys.stderr)
    shutil.rmtree(copy, ignore_errors=True)
    subprocess.run(["cp", "-a", str(base), str(copy)], check=True)
    return copy


class Cluster:
    """Three units of one machine, and what they were given."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.sent = 0

    def configure(self, name: str, more: str = "") -> None:
        """Its file; it is where the package's own is."""
        ordinal = UNITS.index(name)
        path = self.machine.tree / "etc/barco" / f"{name}.toml"
        path.write_text(CONFIG.format(ordinal=ordinal, more=more))

    def active(self, *names: str) -> bool:
        """Whether systemd calls all of them started."""
        return all(self.machine.unit(name, "ActiveState") == "active" for name in names)

    def in_sync(self) -> bool:
        """Whether every copy of everything is there."""
        looks = [
            self.machine.run("curl", "-fsm", "5", f"http://{host}:9250/ready?insync", ok=None)
            for host in HOSTS
        ]
        return all('"inSync":true' in look.replace(" ", "") for look in looks)

    def produce(self, count: int = 200) -> None:
        """Events, acknowledged all."""
        lines = "".join(f'{{"n":{self.sent + each}}}\n' for each in range(count))
        brokers = ",".join(f"{host}:9250" for host in HOSTS)
        self.machine.run("barco", "produce", "t", "--endpoint", brokers, given=lines)
        self.sent += count

    def check(self) -> None:
        """Everything that was acknowledged is there."""
        brokers = ",".join(f"{host}:9250" for host in HOSTS)
        told = self.machine.run(
            "barco", "consume", "t", "--from", "earliest", "--values", "--endpoint", brokers
        )
        found = {json.loads(line)["n"] for line in told.splitlines() if line.startswith("{")}
        missing = set(range(self.sent)) - found
        if missing:
            raise SystemExit(f"boot: {len(missing)} of {self.sent} acknowledged events are lost")
        print(f"           {self.sent} events are there", flush=True)


def install(machine: Machine, package: Path) -> None:
    """From the file, as a person would: nothing runs, and one broker runs when it is asked for."""
    shutil.copy(package, machine.tree / "root" / "barco.deb")
    machine.run("dpkg", "-i", "/root/barco.deb")
    assert machine.run("barco", "--version").startswith("barco ")
    assert machine.run("systemctl", "is-enabled", "barco", ok=1).strip() == "disabled"
    assert machine.run("systemctl", "is-active", "barco", ok=3).strip() == "inactive"
    machine.run("systemctl", "start", "barco")
    machine.run("barco", "produce", "t", given="one\n")
    assert "one" in machine.run("barco", "consume", "t", "--from", "earliest", "--values")
    owner = machine.run("stat", "-c", "%U %a", "/var/lib/barco").strip()
    assert owner == "barco 700", owner
    machine.run("systemctl", "stop", "barco")
    assert machine.run("systemctl", "show", "-P", "Result", "barco").strip() == "success"
    machine.run("rm", "-rf", "/var/lib/barco")
    print("           installed, one broker started and stopped")


def start(cluster: Cluster) -> None:
    """Two brokers are not ready without the third; a wrong file is refused, and not tried again."""
    machine = cluster.machine
    for name in UNITS:
        cluster.configure(name)
    cluster.configure("c", "colour = 1")
    secret = machine.tree / "etc/barco/credentials/secret"
    secret.write_text("0123456789abcdef" * 4)
    secret.chmod(0o600)
    machine.run("systemctl", "start", "--no-block", "barco@a", "barco@b", "barco@c")
    until("c: what is no configuration is refused",
          lambda: machine.unit("c", "ActiveState") == "failed", 30)  # fmt: skip
    assert (machine.unit("c", "ExecMainStatus"), machine.unit("c", "NRestarts")) == ("78", "0")
    assert machine.unit("a", "ActiveState") == machine.unit("b", "ActiveState") == "activating"
    cluster.configure("c")
    machine.run("systemctl", "start", "--no-block", "barco@c")
    until("all three are ready", lambda: cluster.active(*UNITS), 120)
    cluster.produce()
    pid = machine.unit("a", "MainPID")
    told = machine.run("cat", f"/proc/{pid}/status")
    assert "CapEff:\t0000000000000000" in told and "NoNewPrivs:\t1" in told, told
    until("in sync", cluster.in_sync, 60)


def hurt(cluster: Cluster) -> None:
    """Killed, hung, restarted, reloaded: the unit is back, and nothing is lost."""
    machine = cluster.machine
    pid = machine.unit("b", "MainPID")
    machine.run("kill", "-KILL", pid)
    cluster.produce()
    until("b: killed, and back",
          lambda: cluster.active("b") and machine.unit("b", "MainPID") != pid, 60)  # fmt: skip
    until("in sync", cluster.in_sync, 60)
    machine.run("systemctl", "restart", "--no-block", "barco@c")
    cluster.produce()
    until("c: restarted", lambda: cluster.active("c"), 90)
    until("in sync", cluster.in_sync, 60)
    # Not the process that forks them, which is older.
    children = ("pgrep", "-f", "-P", machine.unit("a", "MainPID"), "barco worker")
    worker = machine.run(*children).split()[0]
    machine.run("kill", "-STOP", worker)
    until("a: a worker that hangs is started anew",
          lambda: worker not in machine.run(*children), 40)  # fmt: skip
    assert machine.unit("a", "NRestarts") == "0", "the supervisor has helped itself"
    until("in sync", cluster.in_sync, 60)
    pid = machine.unit("a", "MainPID")
    machine.run("kill", "-STOP", pid)
    until("a: its supervisor hung, and the watchdog started it anew",
          lambda: machine.unit("a", "NRestarts") == "1" and cluster.active("a"), 120)  # fmt: skip
    until("in sync", cluster.in_sync, 60)
    cluster.check()


def reload(cluster: Cluster) -> None:
    """Said by `systemctl status`, and the broker runs on."""
    machine = cluster.machine
    pid = machine.unit("a", "MainPID")
    cluster.configure("a", "colour = 1")
    machine.run("systemctl", "reload", "barco@a")
    until("a: a wrong file is refused at a reload",
          lambda: "reload refused" in machine.unit("a", "StatusText"), 30)  # fmt: skip
    cluster.configure("a", "nice = 1")
    machine.run("systemctl", "reload", "barco@a")
    until("a: a right one is read",
          lambda: "next start" in machine.unit("a", "StatusText"), 30)  # fmt: skip
    assert machine.unit("a", "MainPID") == pid and cluster.active("a")
    cluster.configure("a")


def replace(cluster: Cluster) -> None:
    """A disk is lost, as docs/operations.md has it: root formats, and the service owns it."""
    machine, where = cluster.machine, "/var/lib/barco/b"
    machine.run("systemctl", "stop", "barco@b")
    machine.run("rm", "-rf", where)
    machine.run("systemctl", "start", "--no-block", "barco@b")
    until("b: an empty disk is refused",
          lambda: machine.unit("b", "ActiveState") == "failed", 60)  # fmt: skip
    machine.run("rm", "-rf", where)
    machine.run("barco", "replace", "--config", "/etc/barco/b.toml", "--data-dir", where)
    machine.run("systemctl", "start", "barco@b")
    until("in sync, on a new disk", cluster.in_sync, 90)
    assert machine.run("stat", "-c", "%U", f"{where}/broker.json").strip() == "barco"
    cluster.produce()
    cluster.check()


def leave(cluster: Cluster) -> None:
    """An upgrade stops nobody; who stops hands over first; data stay unless somebody says so."""
    machine = cluster.machine
    before = [machine.unit(name, "MainPID") for name in UNITS]
    machine.run("dpkg", "-i", "/root/barco.deb")
    assert [machine.unit(name, "MainPID") for name in UNITS] == before
    print("           the package again: no broker was restarted")
    machine.run("systemctl", "stop", "barco@b")
    assert machine.unit("b", "Result") == "success" and machine.unit("b", "ExecMainStatus") == "0"
    cluster.produce()
    machine.run("systemctl", "start", "barco@b")
    until("in sync after a stop and a start", cluster.in_sync, 60)
    cluster.check()
    machine.run("dpkg", "--remove", "barco")
    assert all(machine.unit(name, "ActiveState") != "active" for name in UNITS)
    told = machine.run("dpkg", "--purge", "barco")
    assert (machine.tree / "var/lib/barco/a/broker.json").exists() and "is kept" in told
    machine.run("dpkg", "-i", "/root/barco.deb")
    machine.run("systemctl", "start", "--no-block", "barco@a", "barco@b", "barco@c")
    until("installed anew, on the data that were kept", lambda: cluster.active(*UNITS), 120)
    cluster.check()
    machine.run("dpkg", "--purge", "barco", BARCO_PURGE_DATA="yes")
    assert not (machine.tree / "var/lib/barco").exists()
    assert not (machine.tree / "etc/barco").exists()
    print("           purged with its data, as asked")


def main() -> int:
    """All steps; SystemExit at the first that fails."""
    (package,) = sorted((ROOT / "dist").glob("barco_*.deb"))[-1:]
    ROOM.mkdir(parents=True, exist_ok=True)
    machine = Machine(tree("machine"))
    try:
        cluster = Cluster(machine)
        install(machine, package)
        for step in (start, hurt, reload, replace, leave):
            step(cluster)
    finally:
        if "--keep" in sys.argv:
            input("the machine stays until Enter")
        machine.end()
    print("boot: all is well")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
