"""The commands of docs/operations.md for three naked hosts, as they stand there: `make boot`.

Each host is a Debian that was booted (`boot.py`), in a network namespace of its own, on a bridge.
"""

import os
import re
import shutil
import subprocess

from boot import ROOM, ROOT, Machine, tree, until

HOSTS = ("10.77.0.1", "10.77.0.2", "10.77.0.3")
PAGE = ROOT / "docs" / "operations.md"
HEADING = "## From three naked hosts to a cluster"
COMMANDS_MAX = 10


def blocks() -> list[list[str]]:
    """The commands of the section: on the first host, on each, on any."""
    section = PAGE.read_text("utf-8").split(HEADING)[1].split("\n## ")[0]
    found = [block.splitlines() for block in re.findall(r"```\n(.*?)```", section, re.DOTALL)]
    assert len(found) == 3 and sum(map(len, found)) <= COMMANDS_MAX, found
    return found


def wire(machines: list[Machine]) -> str:
    """One bridge for all, in a namespace that is nobody's else; its name."""
    bridge = f"barco-{os.getpid()}"
    command("ip", "netns", "add", bridge)
    inside = ("ip", "-n", bridge)
    command(*inside, "link", "add", "br0", "type", "bridge")
    command(*inside, "link", "set", "br0", "up")
    for number, (machine, host) in enumerate(zip(machines, HOSTS, strict=True)):
        port = f"v{number}"
        peer = ("peer", "name", "eth0", "netns", machine.init)
        command(*inside, "link", "add", port, "type", "veth", *peer)
        command(*inside, "link", "set", port, "master", "br0", "up")
        machine.run("ip", "address", "add", f"{host}/24", "dev", "eth0")
        machine.run("ip", "link", "set", "eth0", "up")
    return bridge


def command(*words: str) -> None:
    """One of this machine."""
    subprocess.run(words, check=True, timeout=30)


def say(machine: Machine, line: str) -> None:
    """As root types it, in its home."""
    print(f"  {machine.name}# {line}", flush=True)
    machine.run("bash", "-euc", f"cd /root && {line}", DEBIAN_FRONTEND="noninteractive")


def copy(machines: list[Machine], line: str) -> None:
    """`scp -p FILE HOST:` between trees: there is no sshd in them."""
    name, host = re.fullmatch(r"scp -p (\w+) ([\d.]+):", line).groups()  # type: ignore[union-attr]
    there = machines[HOSTS.index(host)].tree
    shutil.copy2(machines[0].tree / "root" / name, there / "root" / name)


def run(machines: list[Machine]) -> None:
    """All commands, in the order of the page."""
    first, each, last = blocks()
    for line in first:
        if line.startswith("scp"):
            copy(machines, line)
        else:
            say(machines[0], line)
    for ordinal, machine in enumerate(machines):
        for line in each:
            say(machine, line.replace("ordinal = 0", f"ordinal = {ordinal}"))
    for line in last:
        say(machines[1], line)


def used(machines: list[Machine]) -> None:
    """What is produced on one host is read on another, also when the third is gone for good."""
    brokers = ",".join(f"{host}:9250" for host in HOSTS)
    machines[0].run("barco", "produce", "t", "--endpoint", brokers, given="one\ntwo\n")
    machines[2].end()
    told: list[str] = []

    def read() -> bool:
        told[:] = machines[1].run(
            *("barco", "consume", "t", "--from", "earliest", "--values"),
            *("--endpoint", brokers), ok=None,
        ).split()  # fmt: skip
        return {"one", "two"} <= set(told)

    until("read on another host, with the third one gone", read, 60)


def main() -> int:
    """SystemExit at the first command that fails."""
    (package,) = sorted((ROOT / "dist").glob("barco_*.deb"))[-1:]
    ROOM.mkdir(parents=True, exist_ok=True)
    machines: list[Machine] = []
    bridge = ""
    try:
        for number in range(len(HOSTS)):
            machines.append(Machine(tree(f"host-{number}")))
            shutil.copy(package, machines[-1].tree / "root" / package.name)
        bridge = wire(machines)
        run(machines)
        used(machines)
    finally:
        for machine in machines:
            machine.end()
        if bridge:
            command("ip", "netns", "delete", bridge)
    print("hosts: all is well")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
