"""`barco check` and `barco tune`: what they find here, and would say elsewhere."""

import http.server
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from reference.certificates import authority, issued
from reference.certificates import broker as broker_files

import barco
from barco.cli import main
from barco.cli.commands.check import certificates, disk, host, neighbours
from barco.cli.commands.check.finding import FAULT, GOOD, WARNING
from barco.cli.commands.tune import knobs
from barco.cli.shared.known import Answer
from barco.config import Config


def test_this_machine_will_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is left behind, and the directory need not be there."""
    where = tmp_path / "not" / "there"
    assert main(["check", "--data-dir", str(where), "--json"]) == 0
    found = {each["area"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    wanted = {"kernel", "io_uring", "file system", "direct writes", "clock", "interrupts"}
    assert wanted <= set(found)
    assert found["direct writes"]["level"] == GOOD
    assert list(tmp_path.iterdir()) == []
    assert main(["check", "--data-dir", str(where)]) == 0
    assert str(tmp_path) in capsys.readouterr().out


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no tmpfs at /dev/shm")
def test_memory_is_no_disk(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--data-dir", "/dev/shm/barco-check"]) == 1
    assert "in memory" in capsys.readouterr().out
    assert not Path("/dev/shm/barco-check").exists()


def test_the_file_system_is_that_of_the_last_mount_above() -> None:
    mounts = (
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "2 1 0:3 / /var/lib rw shared:1 - nfs4 host:/x rw\n"
        "3 1 8:2 / /var/lib/my\\040disk rw - btrfs /dev/sdb rw\n"
        "4 3 8:3 / /var/lib/my\\040disk rw - xfs /dev/sdc rw\n"
        "torn\n"
    )
    for path, kind in (
        *(("/home", "ext4"), ("/var/lib", "nfs4"), ("/var/libx", "ext4")),
        ("/var/lib/my disk/a", "xfs"),
    ):
        assert disk.file_system(Path(path), mounts) == kind


def test_kernels_and_io_uring() -> None:
    assert host.kernel("5.4.0").level == FAULT
    assert host.kernel("5.10.1").level == WARNING
    assert host.kernel("6.8.0-x").level == GOOD
    nothing = 999  # No system call of that number: as on a kernel without io_uring.
    assert host.io_uring("auto", nothing).level == WARNING
    found = host.io_uring("io_uring", nothing)
    assert found.level == FAULT and "CONFIG_IO_URING" in found.words


def test_limits_are_those_of_the_shell() -> None:
    script = (
        "import resource\nfor each in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK):\n"
        "    resource.setrlimit(each, (1024, 1024))\n"
        "from barco.cli import main\nmain(['check', '--json'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    found = {each["area"]: each for each in json.loads(done.stdout)["findings"]}
    assert "LimitNOFILE=" in found["open files"]["words"]
    assert "LimitMEMLOCK=" in found["locked memory"]["words"]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] != 1024


def test_budgets_that_do_not_fit() -> None:
    config = Config().override("limits", memory_bytes=2**40).override("broker", workers=8)
    found = host.memory(config)
    assert found.level == WARNING and "limits.memory_bytes" in found.words
    assert host.memory(Config().override("broker", workers=1)).level == GOOD


def test_certificates_by_a_handshake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = tmp_path / "certs"
    made = ["certs", "init", "--dir", str(where), "--broker", "127.0.0.1"]
    assert main(made) == 0
    path = where / "broker-0.crt"
    assert certificates.one(path).level == GOOD
    now = datetime.now(UTC)
    assert certificates.one(path, now + timedelta(days=340)).level == WARNING
    config = where / "barco.toml"
    config.write_text("")
    capsys.readouterr()
    words = ["check", "--config", str(config), "--data-dir", str(tmp_path), "--json"]
    assert main(words) == 0
    looked = json.loads(capsys.readouterr().out)["findings"]
    named = [each["words"].split()[0] for each in looked if each["area"] == "certificate"]
    assert named == [str(path)]
    assert "not a broker's" in certificates.one(where / "ca.crt").words
    (where / "broker-0.key").chmod(0o640)
    assert "chmod 600" in certificates.one(path).words
    (where / "broker-0.key").write_bytes((where / "ca.key").read_bytes())
    assert "not the key" in certificates.one(path).words
    (where / "broker-0.key").unlink()
    assert certificates.one(path).level == FAULT
    assert main(["check", "--data-dir", str(tmp_path), "--certificate", str(path)]) == 1


def test_what_a_start_would_refuse_is_told_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A directory that was made before there was a cluster, another broker's, and an address that
    lets everybody in."""
    where, config = tmp_path / "data", tmp_path / "barco.toml"
    words = ["check", "--config", str(config), "--data-dir", str(where), "--json"]

    def looked(text: str) -> tuple[int, dict[str, dict[str, str]]]:
        config.write_text(text)
        capsys.readouterr()
        code = main(words)
        found = json.loads(capsys.readouterr().out)["findings"]
        return code, {each["area"]: each for each in found if each["area"] != "neighbour"}

    ring = '[broker]\nordinal = %d\n[cluster]\nbrokers = ["127.0.0.%d", "127.0.0.8", "127.0.0.9"]\n'
    assert "data directory" not in looked("")[1], "there is none yet"
    assert main(["format", "--data-dir", str(where)]) == 0
    code, found = looked("")
    assert code == 0 and found["data directory"]["level"] == GOOD and "address" not in found
    code, found = looked(ring % (0, 7))
    assert code == 1 and "for a single broker, not for" in found["data directory"]["words"]
    shutil.rmtree(where)
    config.write_text(ring % (0, 7))
    assert main(["format", "--config", str(config), "--data-dir", str(where)]) == 0
    assert looked(ring % (0, 7))[1]["data directory"]["level"] == GOOD
    assert looked(ring % (1, 7))[0] == 1, "two with one ordinal"
    assert looked(ring % (0, 6))[0] == 1, "another cluster's"
    code, found = looked('[broker]\nbind = "10.77.0.1"\n')
    assert "--insecure-allow-open" in found["address"]["words"]
    assert found["address"]["level"] == WARNING


def test_neighbours(broker, tmp_path: Path) -> None:
    """One is away, and what answers in the place of the other is of another cluster."""
    host_, _, port = broker.endpoint.rpartition(":")
    others = (host_, "127.0.0.77", "127.0.0.78")
    config = Config().override("cluster", brokers=others).override("ports", discovery=int(port))
    found = list(neighbours.look(config.override("broker", ordinal=2, bind="127.0.0.78")))
    assert [each.level for each in found] == [GOOD, FAULT, WARNING]
    assert "another cluster" in found[1].words and "does not answer" in found[2].words
    assert list(neighbours.look(Config())) == []


def test_a_neighbour_that_would_refuse_this_broker_is_told_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = Config().override("cluster", brokers=("127.0.0.76", "127.0.0.77", "127.0.0.78"))
    told: dict[str, Any] = {"version": barco.__version__}
    answer = Answer(ordinal=0, endpoint="b0", told=told, same_cluster=True)
    monkeypatch.setattr(neighbours, "answers", lambda config: [answer])

    def found(**cluster: object) -> str:
        (_, one) = neighbours.look(config.override("cluster", **cluster))
        assert (one.level == FAULT) == ("goes on with TLS" in one.words)
        return one.words

    assert "this end goes on with TLS" in found(ca="ca.crt")
    assert "version" in found(ca="ca.crt", tls_required=False)
    assert "version" in found()
    told["mutualTls"] = {"expires": "2026-12-01T00:00:00Z", "refusesPlain": True}
    assert "the other end goes on with TLS" in found()
    assert "version" in found(ca="ca.crt") and "version" in found(ca="ca.crt", tls_required=False)
    told["mutualTls"]["refusesPlain"] = False
    assert "version" in found()


class Dated(http.server.BaseHTTPRequestHandler):
    """A neighbour, of which nothing but its clock is of interest."""

    ahead_s = 0.0

    def do_GET(self) -> None:
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(time.time() + self.ahead_s)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def dated() -> Iterator[int]:
    """Its port."""
    with http.server.HTTPServer(("127.0.0.1", 0), Dated) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("ahead_s", "words"), [(3600.0, "before"), (-7200.0, "behind"), (2.0, ""), (-2.0, "")]
)
def test_a_clock_that_is_not_the_neighbours_is_told(
    dated: int, ahead_s: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what an answer says of itself, whatever else it says; seconds are no difference."""
    monkeypatch.setattr(Dated, "ahead_s", ahead_s)
    others = ("127.0.0.1", "127.0.0.77", "127.0.0.78")
    config = Config().override("cluster", brokers=others).override("ports", discovery=dated)
    config = config.override("broker", ordinal=1, bind="127.0.0.77")
    told = [each.words for each in neighbours.look(config) if each.area == "clock"]
    assert len(told) == (1 if words else 0), told
    assert all("broker 0" in each and f"s {words} this one" in each for each in told), told


def test_interrupts_that_all_come_to_one_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))
    for number in range(6):
        path = tmp_path / f"proc/irq/{number}/effective_affinity_list"
        path.parent.mkdir(parents=True)
        path.write_text("0\n")
    found = host.interrupts(tmp_path)
    assert found.level == WARNING and "irqbalance" in found.words
    path.write_text("1\n")
    assert host.interrupts(tmp_path).level == GOOD


def machine(root: Path, device: str, **sysctls: str) -> Path:
    """A root directory whose only disk is that of tmp_path, by its number."""
    for name, value in sysctls.items():
        path = root / "proc/sys" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    queue = root / "sys/block/nvme7n1/queue"
    queue.mkdir(parents=True)
    for name, value in (
        ("scheduler", "none [mq-deadline]"),
        ("rotational", "0"),
        ("rq_affinity", "2"),
    ):
        (queue / name).write_text(value)
    part = root / "sys/block/nvme7n1/nvme7n1p1"
    part.mkdir()
    link = root / "sys/dev/block" / device
    link.parent.mkdir(parents=True)
    link.symlink_to(part)
    for folder in ("etc/sysctl.d", "etc/udev/rules.d"):
        (root / folder).mkdir(parents=True)
    return root


def test_what_is_not_right_is_written_for_now_and_for_the_next_start(tmp_path: Path) -> None:
    number = os.stat(tmp_path).st_dev
    root = machine(
        tmp_path / "root",
        f"{os.major(number)}:{os.minor(number)}",
        **{"net__core__somaxconn": "128", "vm__swappiness": "60", "fs__file-max": "2000000"},
    )
    found = {knob.name: knob for knob in knobs.look(root, tmp_path / "data")}
    assert not found["net.core.somaxconn"].right and found["fs.file-max"].right
    assert "net.ipv4.tcp_max_syn_backlog" not in found  # This kernel has none.
    off = [knob for knob in found.values() if not knob.right and knob.kind != "advice"]
    written, refused = knobs.apply(off, root)
    assert refused == [] and "net.core.somaxconn = 4096" in written
    assert str(root / knobs.SYSCTL_FILE) in written
    lines = (root / knobs.SYSCTL_FILE).read_text().splitlines()[1:]
    assert lines == ["net.core.somaxconn = 4096", "vm.swappiness = 10"]
    rule = 'ACTION=="add|change", KERNEL=="nvme7n1", ATTR{queue/scheduler}="none"'
    assert (root / knobs.UDEV_FILE).read_text().splitlines()[1:] == [rule]
    # What a kernel takes is a word; this file has kept all of it.
    (root / "sys/block/nvme7n1/queue/scheduler").write_text("[none] mq-deadline")
    (root / "proc/sys/net/core/somaxconn").write_text("64")
    again = [k for k in knobs.look(root, tmp_path) if not k.right and k.kind != "advice"]
    assert [knob.name for knob in again] == ["net.core.somaxconn"]
    knobs.apply(again, root)
    assert (root / knobs.SYSCTL_FILE).read_text().splitlines()[1:] == lines, "both are kept"
    (root / knobs.SYSCTL_FILE).unlink()
    (root / "etc/sysctl.d").rmdir()
    assert len(knobs.apply(again, root)[1]) == 1


def test_tune_prints_and_only_root_writes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["tune", "--all", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["written"] == [] and {"name", "now", "wanted", "why"} <= set(found["knobs"][0])
    assert main(["tune"]) == 0
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["tune", "--apply"]) == 1
    assert "as root" in capsys.readouterr().err


def test_certificates_of_the_settings_are_looked_at_as_a_start_does(tmp_path: Path) -> None:
    ca, uuid = authority(tmp_path), "a" * 32
    soon = issued(tmp_path, ca, "soon", days=10)
    config = Config().override("tls", certificate=str(soon.certificate), key=str(soon.key))
    (found,) = certificates.configured(config)
    assert found.level == WARNING and "tls.certificate ends in 9 days" in found.words
    (_, other) = certificates.configured(config.override("broker", advertise="10.77.0.2"))
    assert other.level == WARNING and "for localhost, 127.0.0.1" in other.words, other
    assert "told to call 10.77.0.2" in other.words, other
    many = issued(tmp_path, ca, "many", says="subjectAltName=DNS:*.example.org\n")
    config = config.override("tls", certificate=str(many.certificate), key=str(many.key))
    for name, count in (("b0.example.org", 1), ("example.org", 2), ("a.b0.example.org", 2)):
        assert (
            len(list(certificates.configured(config.override("broker", advertise=name)))) == count
        )
    own = broker_files(tmp_path, ca, "own", f"barco:{uuid}/0")
    brokers, named = ("127.0.0.1", "127.0.0.2", "127.0.0.3"), str(ca.certificate)
    ring = Config().override(
        "cluster", brokers=brokers, uuid=uuid, ca=named, certificate=str(own.certificate),
        key=str(own.key),
    )  # fmt: skip
    (found,) = certificates.configured(ring.override("broker", ordinal=0))
    assert found.level == GOOD and "cluster.certificate for 89 days" in found.words
    (found,) = certificates.configured(ring.override("broker", ordinal=1))
    assert found.level == FAULT and f"has to be barco:{uuid}/1" in found.words
