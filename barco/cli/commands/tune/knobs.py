"""Settings of the kernel and of disks that matter to a broker: each with its reason."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SYSCTL_FILE, UDEV_FILE = "etc/sysctl.d/60-barco.conf", "etc/udev/rules.d/60-barco.rules"
HEAD = "# Written by barco tune --apply.\n"


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting, as it is and as it should be."""

    name: str
    """A sysctl's, or a path below /sys."""
    now: str
    """Empty: it cannot be read here."""
    wanted: str
    why: str
    kind: str
    """sysctl, udev, or advice: nobody writes it but a person."""
    right: bool

    def advice(self) -> str:
        """For people."""
        if self.right:
            return f"{self.name} is {self.now}"
        now = f" (it is {self.now})" if self.now else ""
        return f"{self.name} = {self.wanted}{now}: {self.why}"

    def plain(self) -> dict[str, object]:
        """For JSON."""
        return {
            each: getattr(self, each) for each in ("name", "now", "wanted", "why", "kind", "right")
        }


AT_LEAST = (
    ("net.core.somaxconn", 4096, "connections that wait to be accepted; a burst is refused beyond"),
    ("net.ipv4.tcp_max_syn_backlog", 4096, "handshakes under way; a burst waits a second beyond"),
    ("vm.max_map_count", 65530, "each segment that is read is a map or two"),
    ("fs.file-max", 1_000_000, "of all processes; a broker takes 65,536"),
)
AT_MOST = (
    ("vm.swappiness", 10, "a worker that was swapped out answers late, and loses its shards"),
    ("kernel.io_uring_disabled", 0, "else epoll serves: more CPU for each event"),
)


def look(root: Path, data_dir: Path) -> list[Knob]:
    """As they are below `root`, which is / but in tests."""
    found = [_sysctl(root, *each, least=True) for each in AT_LEAST]
    found += [_sysctl(root, *each, least=False) for each in AT_MOST]
    knobs = [knob for knob in found if knob is not None]
    for queue in _queues(root, data_dir):
        knobs += _of_disk(queue)
    return knobs + _of_processors(root)


def apply(knobs: Sequence[Knob], root: Path) -> tuple[list[str], list[str]]:
    """Write those that can be written: for now, and for the next start. What was, and what could
    not be."""
    written: list[str] = []
    refused: list[str] = []
    for knob in knobs:
        path = _path(root, knob)
        if path is not None:
            _write(path, knob.wanted, f"{knob.name} = {knob.wanted}", written, refused)
    for kind, name in (("sysctl", SYSCTL_FILE), ("udev", UDEV_FILE)):
        lines = {_line(knob) for knob in knobs if knob.kind == kind}
        if lines:
            path = root / name
            text = HEAD + "".join(f"{line}\n" for line in sorted(lines | _before(path)))
            _write(path, text, str(path), written, refused)
    return written, refused


def _before(path: Path) -> set[str]:
    """What an earlier run has written: it is right now, and has to be so at the next start."""
    try:
        return {line for line in path.read_text().splitlines() if line and line[0] != "#"}
    except OSError:
        return set()


def _write(path: Path, text: str, name: str, written: list[str], refused: list[str]) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        refused.append(f"{name}: {error.strerror}")
    else:
        written.append(name)


def _line(knob: Knob) -> str:
    if knob.kind == "sysctl":
        return f"{knob.name} = {knob.wanted}"
    device, attribute = knob.name.removeprefix("block/").split("/", 1)
    return f'ACTION=="add|change", KERNEL=="{device}", ATTR{{{attribute}}}="{knob.wanted}"'


def _path(root: Path, knob: Knob) -> Path | None:
    if knob.kind == "sysctl":
        return root / "proc/sys" / knob.name.replace(".", "/")
    return root / "sys" / knob.name if knob.kind == "udev" else None


def _sysctl(root: Path, name: str, wanted: int, why: str, *, least: bool) -> Knob | None:
    now = _word(root / "proc/sys" / name.replace(".", "/"))
    if not now.isdigit():
        return None  # This kernel has none.
    right = int(now) >= wanted if least else int(now) <= wanted
    return Knob(name, now, str(wanted), why, "sysctl", right)


def _queues(root: Path, data_dir: Path) -> list[Path]:
    """Of the disk that the directory, or the one above it that is there, is on."""
    path = data_dir.absolute()
    while not path.exists():
        path = path.parent
    number = os.stat(path).st_dev
    device = root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    for each in (device, device.resolve().parent):
        if (each / "queue").is_dir():
            return [each.resolve() / "queue"]
    return []


def _of_disk(queue: Path) -> list[Knob]:
    name, turns = queue.parent.name, _word(queue / "rotational") == "1"
    knobs = []
    scheduler = _word(queue / "scheduler")
    if scheduler and not turns:
        now = scheduler.partition("[")[2].partition("]")[0]
        why = "a disk without moving parts orders its work itself; ours is in order already"
        knobs.append(_udev(f"block/{name}/queue/scheduler", now, "none", why))
    affinity = _word(queue / "rq_affinity")
    if affinity:
        why = "what a disk has done is told on the core that asked, where its worker runs"
        knobs.append(_udev(f"block/{name}/queue/rq_affinity", affinity, "2", why))
    return knobs


def _udev(name: str, now: str, wanted: str, why: str) -> Knob:
    return Knob(name, now, wanted, why, "udev", now == wanted)


def _of_processors(root: Path) -> list[Knob]:
    knobs = []
    governor = _word(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor:
        why = "a core that sleeps deep wakes late: cpupower frequency-set -g performance"
        right = governor == "performance"
        knobs.append(Knob("scaling_governor", governor, "performance", why, "advice", right))
    spread = interrupts(root)
    return knobs if spread is None else [*knobs, spread]


def interrupts(root: Path) -> Knob | None:
    """What to do where one core of several takes all of them; None: it does not."""
    if len(os.sched_getaffinity(0)) <= 2 or not _interrupts_on_one(root):
        return None
    why = "one core takes all of them: apt install irqbalance, or spread /proc/irq/N/smp_affinity"
    return Knob("interrupts", "on one core", "spread", why, "advice", False)


def _interrupts_on_one(root: Path) -> bool:
    """Whether every interrupt of a disk or a network card may come to a single core only."""
    lists = [_word(path) for path in (root / "proc/irq").glob("*/effective_affinity_list")]
    used = {each for each in lists if each}
    return len(lists) > 4 and len(used) == 1 and next(iter(used)).isdigit()


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
