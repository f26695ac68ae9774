"""What the machine must offer before a broker starts on it; each refusal says what to do."""

import asyncio
import contextlib
import logging
import os
import re
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path

from barco import limits
from barco.addresses import advertised, is_loopback, source
from barco.config import Config, check_cluster_ports, resolved
from barco.errors import ConfigError
from barco.limits import KERNEL_VERSION_FULL, KERNEL_VERSION_MIN, WORKERS_MAX
from barco.model.placement import REPLICAS, ring_size_valid
from barco.model.ranges import ProcessTable
from barco.supervisor.files.certificate import read_certificate, read_mutual
from barco.supervisor.secret import read_secret
from barco.types import Ordinal

log = logging.getLogger("barco.supervisor")

MAKE_USERS = "barco users first --data-dir DIR NAME, then access.required = true"
MAKE_CERTIFICATE = "barco certs init, then tls.certificate and tls.key"
MAKE_MUTUAL = "barco certs init, then cluster.ca, cluster.certificate and cluster.key"
"""What makes it right that anybody could ask, and read what is sent."""


def check_kernel(release: str | None = None) -> tuple[int, int]:
    """The kernel's version, if barco runs on it."""
    release = release or os.uname().release
    match = re.match(r"(\d+)\.(\d+)", release)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version < KERNEL_VERSION_MIN:
        raise ConfigError(
            f"Linux {release} is too old: barco needs {_dotted(KERNEL_VERSION_MIN)} or newer"
            f" ({_dotted(KERNEL_VERSION_FULL)} for io_uring)"
        )
    return version


def check(config: Config, insecure_allow_open: bool) -> tuple[Config, bool]:
    """The configuration with this broker's place in it, and whether it is open to others; refused
    before anything is made, or bound."""
    config = check_cluster(config)
    open_to_all = check_bind(config, insecure_allow_open)
    advertised_by(config)
    read_secret(config)
    read_certificate(config)
    read_mutual(config)
    return config, open_to_all


def check_bind(config: Config, insecure_allow_open: bool) -> bool:
    """Whether the broker is open to other machines; refused unless that was asked for.

    Closed is one whose clients have users and speak TLS, as brokers do among themselves."""
    if is_loopback(config.broker.bind):
        return False
    alone = len(config.cluster.brokers) <= 1
    lacks = [] if config.access.required else [f"access.required ({MAKE_USERS})"]
    lacks += [] if config.tls.certificate else [f"tls.certificate ({MAKE_CERTIFICATE})"]
    if not alone:
        lacks += [] if config.cluster.ca else [f"cluster.ca ({MAKE_MUTUAL})"]
        lacks += [] if config.cluster.tls_required else ["cluster.tls_required = true"]
    if not lacks:
        return False
    if not insecure_allow_open:
        risk = "what is sent, tokens too" if config.access.required else "and write"
        raise ConfigError(
            f"broker.bind = {config.broker.bind!r} would let other machines in, and what is missing"
            f" for that is {', and '.join(lacks)}: make it right, or use 127.0.0.1, or"
            f" --insecure-allow-open to let anyone who reaches this address read {risk}"
        )
    return True


def advertised_by(config: Config) -> str:
    """The address or name of this broker that clients are told."""
    return advertised(config.broker.bind, config.broker.advertise, _entry(config))


def source_of(config: Config) -> str:
    """The address from which this broker calls others."""
    return source(config.broker.bind, _entry(config))


def _entry(config: Config) -> str:
    brokers = config.cluster.brokers
    return brokers[config.broker.ordinal] if len(brokers) > 1 else ""


def check_cluster(config: Config) -> Config:
    """The configuration with this broker's place in the cluster, if it is in one."""
    config = resolved(config)
    if len(config.cluster.brokers) > 1:
        check_cluster_ports(config, REPLICAS * worker_count(config))
    return config


def new_ring(config: Config) -> int:
    """How many brokers a new cluster is formatted with; ConfigError where no ring has so many."""
    size = max(1, len(config.cluster.brokers))
    if not ring_size_valid(size):
        raise ConfigError(
            f"cluster.brokers lists {size}: a new cluster begins with 3, 6, 12 or 24 brokers and so"
            " on, and one that comes later joins the others with barco format --join"
        )
    return size


def cores() -> list[int]:
    """The CPUs that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def core_of(process: int, *, workers: int, ordinal: int, cores: Sequence[int]) -> int:
    """The CPU of a broker's process, of those that it may run on. Pure.

    Who leads has a core of its own if there are enough, and those that follow share the others. The
    brokers of one machine know nothing of each other: each begins at another core, by its ordinal,
    a third of the cores further on if that is more than it has workers.
    """
    count = len(cores)
    first = ordinal * max(workers, count // REPLICAS)
    seat, shard = divmod(process, workers)
    if seat == 0:
        return cores[(first + shard) % count]
    follower = process - workers
    if count > workers:  # Beside the leaders' cores.
        return cores[(first + workers + follower % (count - workers)) % count]
    return cores[(first + process) % count]


class Cores:
    """Those that there are, and who has which: by the table of processes as it is."""

    def __init__(self, ordinal: int, member: Ordinal, cores: Sequence[int]) -> None:
        """ordinal: of the broker. member: what it is called in ranges. cores: that it may use."""
        assert cores, "this process runs on one"
        self._ordinal, self._member, self._cores = ordinal, member, cores
        self._pinned: dict[int, int] = {}
        """By process id, where each was put since it was started."""

    def say(self, table: ProcessTable) -> None:
        """That processes share cores, if they do."""
        count, leading = len(self._cores), len(table.owned_by(self._member))
        if len(table) > count:
            log.log(
                logging.WARNING if leading > count else logging.INFO,
                "%d processes share %d cores (%d of them lead): more cores, or fewer workers, give"
                " each one of its own",
                *(len(table), count, leading),
            )

    def of(self, table: ProcessTable, number: int) -> int:
        """The core of a process. Those that lead come first, then those that follow, by number."""
        leading = [held.number for held in table.owned_by(self._member)]
        order = leading + [each for each in table.numbers if each not in leading]
        return core_of(
            order.index(number),
            workers=max(1, len(leading)),
            ordinal=self._ordinal,
            cores=self._cores,
        )

    def move(self, table: ProcessTable, pids: Mapping[int, int]) -> None:
        """There are other processes now: each that runs goes to its place among them, with all its
        threads. pids: by number; one that is just being started pins itself to where it was told.
        """
        gone = self._pinned.keys() - set(pids.values())
        for pid in gone:
            del self._pinned[pid]
        for number, pid in pids.items():
            core = self.of(table, number)
            if self._pinned.get(pid) != core:
                self._pinned[pid] = core
                _pin(pid, core)


def _pin(pid: int, core: int) -> None:
    """A process that has just ended is no matter, nor is a thread of the kernel's own."""
    try:
        threads = [int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return
    for thread in threads:
        try:
            os.sched_setaffinity(thread, {core})
        except OSError:
            continue


def worker_count(config: Config) -> int:
    """As configured, or one for each core, as far as there are slices for them."""
    most = min(config.cluster.slices_per_range, WORKERS_MAX)
    return config.broker.workers or min(len(cores()), most)


def set_limits() -> int:
    """Of this process and its workers: as many files as may be, how many that is, and no dumps."""
    forbid_core_dumps()
    return raise_file_limit()


def raise_file_limit() -> int:
    """Take all the file descriptors that are allowed; the workers inherit the limit. How many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass  # A sandbox without setrlimit: what there is has to do.
    return soft


def forbid_core_dumps() -> None:
    """What a broker has in memory are tokens, keys and events: no file of it, whoever starts it.

    1, not 0: Linux gives a core to a program (`kernel.core_pattern` with a |) whatever the limit
    is, but for that one. Workers inherit it; who debugs says `prlimit --core=unlimited`."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    most = 1 if hard == resource.RLIM_INFINITY else min(1, hard)
    with contextlib.suppress(OSError, ValueError):  # A sandbox without setrlimit.
        resource.setrlimit(resource.RLIMIT_CORE, (most, hard))


def set_priority(wanted: int) -> str:
    """Give this process, and the workers it will start, a priority as nice(1) counts; 0: none.

    Returns why that was refused, with what to do, or nothing. Where the kernel gives each session
    a share of its own (autogroup), a priority counts among the processes of one session only; the
    session has one as well, which is set if it is the broker's own.
    """
    if wanted == 0:
        return ""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, wanted)
    except OSError as error:
        return (
            f"broker.nice = {wanted} is refused ({error.strerror}): run as root, give it"
            f" CAP_SYS_NICE or LimitNICE={wanted}, or have systemd do it (Nice={wanted})"
        )
    if os.getsid(0) == os.getpid():
        try:
            Path("/proc/self/autogroup").write_text(str(wanted))
        except OSError:
            pass  # The kernel has no such groups, or /proc is closed here.
    return ""


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


async def warn_open(config: Config) -> None:
    """Again and again: whoever reads the log later is told as well."""
    while True:
        log.warning(
            "open to everyone who reaches this address, without %s (--insecure-allow-open)",
            "TLS" if config.access.required else "authentication",
            extra={"bind": config.broker.bind},
        )
        await asyncio.sleep(limits.OPEN_WARNING_SECONDS)
