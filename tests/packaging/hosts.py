"""The commands of docs/operations.md for three naked hosts, as they stand there: `make boot`.

Each host is a Debian that was booted (`boot.py`), in a network namespace of its own, on a bridge,
with an sshd that knows the first one's root.
First they are open, then closed (users, TLS, TLS between brokers), then a later package comes.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from boot import ROOM, ROOT, Machine, tree, until

HOSTS = ("10.77.0.1", "10.77.0.2", "10.77.0.3")
PAGE = ROOT / "docs" / "operations.md"
OPEN = "## From three naked hosts to a cluster"
CLOSED = "## Closed: users, TLS, TLS between brokers"
COMMANDS_MAX = 10
BROKERS = ",".join(f"{host}:9250" for host in HOSTS)
SEALED = ",".join(f"https://{host}:9250" for host in HOSTS)
SHOWN = ("--ca", "ca.crt", "--token-file", "token")


def blocks(heading: str) -> list[list[str]]:
    """The commands of a section: on the first host, on each, on any."""
    section = PAGE.read_text("utf-8").split(heading)[1].split("\n## ")[0]
    found = [block.splitlines() for block in re.findall(r"```\n(.*?)```", section, re.DOTALL)]
    assert sum(map(len, found)) <= COMMANDS_MAX, found
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
        machine.host = host
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


def befriend(machines: list[Machine]) -> None:
    """What an operator has before he begins: root of the first host may come to the others by ssh,
    and has been there."""
    first, *others = machines
    first.run("install", "-d", "-m", "700", "/root/.ssh")
    first.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/.ssh/id_ed25519")
    key = (first.tree / "root/.ssh/id_ed25519.pub").read_text()
    for machine in others:
        machine.run("install", "-d", "-m", "700", "/root/.ssh")
        (machine.tree / "root/.ssh/authorized_keys").write_text(key)
        machine.run("systemctl", "start", "ssh")
        known = ("ssh", "-o", "StrictHostKeyChecking=accept-new", machine.host, "true")
        until(f"{machine.name} lets it in by ssh", lambda words=known: came(first, *words), 30)


def came(machine: Machine, *words: str) -> bool:
    """Whether a command there ends well."""
    return "yes" in machine.run("sh", "-c", '"$@" && echo yes', "sh", *words, ok=None)


def run(machines: list[Machine], lines: list[str]) -> None:
    """Commands of the first host, which copies files to the others."""
    for line in lines:
        say(machines[0], line)


def run_on_each(machines: list[Machine], lines: list[str]) -> None:
    """As they stand there, with the broker's own number."""
    for ordinal, machine in enumerate(machines):
        for line in lines:
            line = line.replace("ordinal = 0", f"ordinal = {ordinal}")
            say(machine, line.replace("broker-0", f"broker-{ordinal}"))


def opened(machines: list[Machine]) -> None:
    """From naked to a cluster that is open to all."""
    first, each, last = blocks(OPEN)
    run(machines, first)
    run_on_each(machines, each)
    for line in last:
        say(machines[1], line)
    machines[0].run("barco", "produce", "t", "--endpoint", BROKERS, given="one\ntwo\n")


def status(machine: Machine) -> dict[str, Any]:
    """What the broker there says of itself, if it does; asked from the host with the token."""
    asks = (
        'exec curl -sm 5 --cacert ca.crt -H "Authorization: Bearer $(cat token)" "$0" 2>/dev/null'
    )
    told = in_home(machine, "sh", "-c", asks, f"https://{machine.host}:9250/status", ok=None)
    try:
        return dict(json.loads(told))
    except ValueError:
        return {}


def in_home(machine: Machine, *words: str, ok: int | None = 0, given: str = "") -> str:
    """A command in root's home, where its files are."""
    return machine.run("env", "-C", "/root", *words, ok=ok, given=given)


def in_sync(machines: list[Machine]) -> bool:
    """Whether all say that every copy is there."""
    return all(status(machine).get("inSync") is True for machine in machines)


def closed(machines: list[Machine]) -> None:
    """With tokens and TLS everywhere: who has neither is refused, what was there is there."""
    first, each = blocks(CLOSED)
    run(machines, first)
    for machine in machines:
        say(machine, "systemctl stop barco")
    run_on_each(machines, each)
    for machine in machines[1:]:  # The administrator looks from each of them.
        shutil.copy2(machines[0].tree / "root" / "token", machine.tree / "root" / "token")
    until("all are ready, with TLS and users", lambda: in_sync(machines), 120)
    for machine in machines:
        told = status(machine)
        assert told["mutualTls"]["refusesPlain"] and not told.get("openToAll"), told
        assert (machine.tree / "etc/default/barco").exists() is False
    plain = machines[1].run("curl", "-sm", "5", f"http://{HOSTS[0]}:9250/v1/topics", ok=None)
    assert "this port speaks TLS" in plain, plain
    nobody = in_home(
        machines[1], "curl", "-sm", "5", "--cacert", "ca.crt", f"https://{HOSTS[0]}:9250/v1/topics"
    )
    assert "unauthorized" in nobody, nobody
    for host in HOSTS:  # Not a broker: nothing but the greeting is answered.
        for port in (9255, 9256):
            heard = machines[1].run("curl", "-sm", "5", f"http://{host}:{port}/", ok=None)
            assert heard == "", (host, port, heard)
    in_home(machines[1], *("barco", "produce", "t", "--endpoint", SEALED, *SHOWN), given="three\n")


def later(package: Path) -> Path:
    """The same package, as a later version."""
    room, made = ROOM / "later", ROOM / "barco_later.deb"
    shutil.rmtree(room, ignore_errors=True)
    command("dpkg-deb", "-R", str(package), str(room))
    control = room / "DEBIAN" / "control"
    text = control.read_text()
    control.write_text(re.sub(r"(?m)^(Version: .*)$", r"\1+later", text))
    command("dpkg-deb", "-Znone", "--root-owner-group", "-b", str(room), str(made))
    shutil.rmtree(room)
    return made


def upgraded(machines: list[Machine], package: Path) -> None:
    """As the page has it: the package on each, the check, a restart, one after the other."""
    made = later(package)
    for ordinal, machine in enumerate(machines):
        shutil.copy(made, machine.tree / "root" / "later.deb")
        before = machine.run("systemctl", "show", "-P", "MainPID", "barco")
        say(machine, "apt-get install -y ./later.deb")
        assert machine.run("systemctl", "show", "-P", "MainPID", "barco") == before
        assert "+later" in machine.run("dpkg-query", "-W", "-f", "${Version}", "barco")
        say(
            machine,
            "BARCO_TOKEN_FILE=token BARCO_CA=ca.crt barco upgrade-check --wait 120"
            " --config /etc/barco/barco.toml --data-dir /var/lib/barco"
            f" --endpoint https://{machine.host}:9250 && systemctl restart barco",
        )
        assert machine.run("systemctl", "show", "-P", "MainPID", "barco") != before
        words = ("barco", "produce", "t", "--endpoint", SEALED, *SHOWN)
        in_home(machines[0], *words, given=f"after {ordinal}\n")
        until(f"host {ordinal} is upgraded and all in sync", lambda: in_sync(machines), 120)


def used(machines: list[Machine]) -> None:
    """What was produced on one host is read on another, also when the third is gone for good."""
    machines[2].end()
    told: list[str] = []
    wanted = {"one", "two", "three", *(f"after {each}" for each in range(len(HOSTS)))}

    def read() -> bool:
        told[:] = in_home(
            machines[1],
            *("barco", "consume", "t", "--from", "earliest", "--values"),
            *("--endpoint", SEALED, *SHOWN), ok=None,
        ).splitlines()  # fmt: skip
        return wanted <= set(told)

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
        befriend(machines)
        opened(machines)
        closed(machines)
        upgraded(machines, package)
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
