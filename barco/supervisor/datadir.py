"""The data directory as the supervisor sees it: identity (broker.json), processes, lock.

The ranges inside belong to the workers. broker.json is written once, by `format_data_dir`, and what
it fixes (the cut of the ring into slices) never changes: it decides where every stored event is.
processes.json says which process holds which range; the first one follows from broker.json.
"""

import json
import logging
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crc32c import crc32c
from msgspec import Struct
from msgspec.structs import asdict, fields, replace

from barco import config as configuration
from barco import limits
from barco.config import Config
from barco.errors import DataDirError
from barco.limits import SLICES_PER_RANGE_MAX, WORKERS_MAX
from barco.model.options import DIRECTORY_FORMATS, LOG_FORMATS
from barco.model.placement import Placement, ring_size_valid
from barco.model.ranges import (
    HeldRange,
    ProcessTable,
    directory_of,
    first_table,
    flaw,
    from_plain,
    to_plain,
)
from barco.model.replicas import Replicas
from barco.supervisor import machine
from barco.supervisor.files import notes
from barco.supervisor.files.addresses import ADDRESSES
from barco.supervisor.files.asked import ASKED, asked_before
from barco.supervisor.files.first_users import NAME as FIRST_USERS
from barco.supervisor.files.lock import LOCK, open_lock, refusal
from barco.supervisor.files.notes import JOURNALS, NAMED, log_format
from barco.supervisor.files.routes import ROUTES
from barco.types import Ordinal

IDENTITY = "broker.json"
PROCESSES = notes.PROCESSES
journals_named = notes.journals_named
NEW = ".new"
RANGES, NUMBERED = "range-*", "shard-*"
"""Directories of ranges, and as they were called while a number said what a process holds."""
FORMAT = DIRECTORY_FORMATS[-1]
"""Of broker.json."""
RUN = "run"

log = logging.getLogger("barco.supervisor")


class Identity(Struct, frozen=True, kw_only=True):
    """broker.json: who wrote this directory, and the shape that can not change."""

    format: int = FORMAT
    cluster_uuid: str
    disk_uuid: str
    ordinal: int
    workers: int
    """Of each broker when it was formatted: the first cut into ranges. How many there are now, the
    target says."""
    slices_per_range: int
    ring_size: int = 1
    """Brokers in the ring when the directory was formatted; a ring of 1 stays one."""
    replaces: str = ""
    """The disk_uuid of the lost disk that this one stands in for (`barco replace`)."""

    @property
    def cut(self) -> Placement:
        """How the ring was cut into slices when the cluster was formatted."""
        return Placement(self.ring_size, self.slices_per_range)

    @property
    def member(self) -> Ordinal:
        """What this broker is called as a member: the only one of a ring of one is broker 0."""
        return Ordinal(self.ordinal if self.ring_size > 1 else 0)

    @property
    def joined(self) -> bool:
        """Whether it is no broker of the first cut: it came when there was a cluster."""
        return self.ordinal >= self.ring_size > 1

    def first_table(self) -> ProcessTable:
        """The processes that a broker of the first cut has when it is formatted."""
        return first_table(Replicas(self.cut, self.workers), self.member)


def format_data_dir(
    path: Path,
    *,
    workers: int,
    slices_per_range: int,
    ordinal: int = 0,
    cluster_uuid: str = "",
    ring_size: int = 1,
    replaces: str = "",
    table: ProcessTable | None = None,
) -> Identity:
    """Make an empty or absent directory a data directory, durably. `claim` it before.

    table: the processes of a broker that joins a cluster later; None: those of the first cut.
    """
    assert 1 <= workers <= slices_per_range
    identity = Identity(
        cluster_uuid=cluster_uuid or uuid.uuid4().hex,
        disk_uuid=uuid.uuid4().hex,
        ordinal=ordinal,
        workers=workers,
        slices_per_range=slices_per_range,
        ring_size=ring_size,
        replaces=replaces,
    )
    assert identity.joined == (table is not None), "who joins has its ranges from elsewhere"
    table = table or identity.first_table()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_empty(path)
        write_table(path, identity, table, named=True, format=LOG_FORMATS[-1])
        _make_ranges(path, table)
        _write(path, IDENTITY, json.dumps(asdict(identity)))  # From here on it is formatted.
        _sync_directory(path.resolve().parent)
    except OSError as error:
        raise refusal(path, error) from None
    return identity


def clear_stranger(path: Path, identity: Identity, lost: str) -> None:
    """Empty a directory that was formatted and then refused by the others; `claim` it before.

    DataDirError if it may hold a copy that somebody counts on: the disk is the one that is known,
    or its own lineage names it as a member. Interrupted, it can be done again.
    """
    shards = sorted((*path.glob(RANGES), *path.glob(NUMBERED)))
    read_table(path, identity)  # With a bit flipped in its name its own disk looks like another's.
    names = (bytes.fromhex(identity.disk_uuid), identity.disk_uuid.encode())
    logs = (log for shard in shards for log in shard.glob("lineage*") if log.is_file())
    try:
        named = any(name in log.read_bytes() for log in logs for name in names)
        if identity.disk_uuid == lost or identity.replaces or named:
            raise DataDirError(
                f"{path} is already formatted, as disk {identity.disk_uuid}, and may hold copies"
                " that count: start the broker with it, or pass another --data-dir"
            )
        for shard in shards:
            shutil.rmtree(shard)
        shutil.rmtree(path / RUN, ignore_errors=True)
        (path / IDENTITY).unlink()
        for name in (PROCESSES, ROUTES, ASKED, ADDRESSES):
            (path / name).unlink(missing_ok=True)
        _sync_directory(path)
    except OSError as error:
        raise refusal(path, error) from None


def load(path: Path) -> Identity | None:
    """The identity of a formatted directory; None where there is nothing yet."""
    try:
        given: Any = json.loads((path / IDENTITY).read_text("utf-8"))
        identity = Identity(**given)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refusal(path, error) from None
    except (ValueError, TypeError, RecursionError):
        raise DataDirError(f"{path / IDENTITY} is damaged: restore it from a backup") from None
    if identity.format not in DIRECTORY_FORMATS:
        raise DataDirError(
            f"{path} has format {identity.format}, this version of barco reads {FORMAT}: use the"
            " version that wrote it, or a later one"
        )
    if not _plausible(identity):
        raise DataDirError(f"{path / IDENTITY} is damaged: restore it from a backup")
    return identity


def identify(path: Path, config: Config, known_disk: Callable[[Config], str | None]) -> Identity:
    """The data directory's identity; an empty directory is formatted for this machine.

    known_disk: the disk with which other brokers know this one.
    """
    identity = load(path)
    slices = config.cluster.slices_per_range
    if identity is None:
        if (known := known_disk(config)) is not None:
            raise DataDirError(
                f"{path} is empty, and broker {config.broker.ordinal} of this cluster is"
                f" known with disk {known}: bring its data directory back or, if it is lost, run"
                " barco replace with the same options, then barco serve; if that broker is another"
                " one, correct broker.ordinal"
            )
        identity = format_data_dir(
            path,
            workers=machine.worker_count(config),
            slices_per_range=slices,
            ordinal=config.broker.ordinal,
            cluster_uuid=configuration.cluster_uuid(config),
            ring_size=machine.new_ring(config),
        )
        extra = {"data_dir": str(path), "workers": identity.workers}
        log.info("data directory formatted", extra=extra)
        return identity
    check_formatted(path, config, identity)
    return identity


def check_formatted(
    path: Path, config: Config, identity: Identity, table: ProcessTable | None = None
) -> None:
    """Refuse a configuration that is not of this data directory, or has no ports for its table."""
    if table is not None and identity.ring_size > 1:
        configuration.check_cluster_ports(config, table.numbers[-1] + 1)
    check_membership(path, config, identity)
    slices = config.cluster.slices_per_range
    if slices not in (limits.SLICES_PER_RANGE, identity.slices_per_range):
        raise DataDirError(
            f"{path} was formatted with {identity.slices_per_range} slices, not with"
            f" cluster.slices_per_range = {slices}: leave the key out, or pass another --data-dir"
        )


def asked_for(path: Path, config: Config, identity: Identity) -> int:
    """How many workers the configuration asks for that it did not ask for before; 0: none."""
    wanted = config.broker.workers
    return 0 if wanted == asked_before(path, identity.workers) else wanted


def check_membership(path: Path, config: Config, identity: Identity) -> None:
    """Refuse a directory that belongs to another cluster, or to another broker of it."""
    ring_size = max(1, len(config.cluster.brokers))
    if (identity.ring_size == 1) != (ring_size == 1):
        kinds = {True: "a single broker", False: "a broker of a cluster"}
        raise DataDirError(
            f"{path} was formatted for {kinds[identity.ring_size == 1]}, not for"
            f" {kinds[ring_size == 1]}: pass the --config it was made with, or another --data-dir"
        )
    if ring_size > 1 and identity.ring_size > ring_size:
        raise DataDirError(
            f"{path} was formatted for a cluster of {identity.ring_size} brokers, and"
            f" cluster.brokers lists {ring_size}: brokers are taken out of a cluster by barco"
            " scale, not by the list; restore it"
        )
    wanted = configuration.cluster_uuid(config)
    if wanted and identity.cluster_uuid != wanted:
        raise DataDirError(
            f"{path} belongs to cluster {identity.cluster_uuid}, the configuration is of cluster"
            f" {wanted}: correct cluster.uuid or cluster.brokers, or pass another --data-dir"
        )
    if ring_size > 1 and identity.ordinal != config.broker.ordinal:
        raise DataDirError(
            f"{path} belongs to the broker with ordinal {identity.ordinal}, this one has"
            f" {config.broker.ordinal}: correct broker.ordinal, or pass another --data-dir"
        )


def read_table(path: Path, identity: Identity) -> ProcessTable:
    """The broker's processes, as the directory has them; nothing is changed.

    DataDirError if the table is damaged, is not there though ranges are, or is of another
    broker.json than this one.
    """
    file = path / PROCESSES
    try:
        given = json.loads(file.read_text("ascii"))
        table = from_plain(given["processes"])
        if not LOG_FORMATS[0] <= given["format"] <= LOG_FORMATS[-1]:
            raise DataDirError(
                f"{file} says that the logs have format {given['format']}, this version of barco"
                f" reads {LOG_FORMATS[0]} to {LOG_FORMATS[-1]}: use the version that wrote them, or"
                " a later one"
            )
        of = given.get("broker", "")
        if given["check"] != _check([of, given["processes"]] if of else given["processes"]):
            raise ValueError("its checksum is another")
        if of != _facts(identity) and (of or identity.format == FORMAT):
            raise DataDirError(
                f"{path / IDENTITY} and {PROCESSES} beside it do not belong together: one of them"
                " is damaged, or another broker's; restore it from a backup"
            )
        if (what := flaw(table, identity.cut, identity.member)) is not None:
            raise ValueError(what)
        return table
    except FileNotFoundError:
        if next(path.glob(RANGES), None) is None and not identity.joined:
            return identity.first_table()
        raise DataDirError(
            f"{file} is not there: it says which process holds which range of {path}; restore it"
            " from a backup"
        ) from None
    except OSError as error:
        raise refusal(path, error) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        why = f" ({error})" if str(error) else ""
        raise DataDirError(f"{file} is damaged{why}: restore it from a backup") from None


def write_table(
    path: Path,
    identity: Identity,
    table: ProcessTable,
    *,
    named: bool = False,
    format: int | None = None,
) -> None:
    """Put the broker's processes on the disk, all or nothing, before one of them is started.

    named: every journal here says whose it is, or is not begun (`journals_named`). format: of the
    logs, None: as it is.
    """
    try:
        _write(path, PROCESSES, _table_text(identity, table, named, format or log_format(path)))
    except OSError as error:
        raise refusal(path, error) from None


def holds_events(path: Path, token: int) -> bool:
    """Whether anything was ever written into the log of the range that begins at this token."""
    return any((path / directory_of(token)).glob("gen-*"))


def numbered(path: Path) -> list[Path]:
    """Directories that are still called by the number of their process."""
    return sorted(path.glob(NUMBERED))


def adopt_table(path: Path, identity: Identity) -> ProcessTable:
    """At a start: the table, made if this directory has none yet; `claim` it before.

    A directory that an earlier version has named by its process's number gets its range's name, as
    soon as broker.json keeps that version away; interrupted, that is done again.
    """
    table = read_table(path, identity)
    if not (path / PROCESSES).exists() or identity.format != FORMAT:
        write_table(path, identity, table)
    names = {f"shard-{held.number:04d}": directory_of(held.token) for held in table}
    try:
        if identity.format != FORMAT:
            _make_ranges(path, table)
            _write(path, IDENTITY, json.dumps(asdict(replace(identity, format=FORMAT))))
        for old in numbered(path):
            if old.name in names:
                _rename(old, path / names[old.name])
    except OSError as error:
        raise refusal(path, error) from None
    _check_ranges(path, identity, table)
    return table


def _make_ranges(path: Path, table: ProcessTable) -> None:
    """Before broker.json says that they are there: one that is not was taken away later."""
    there = {old.name for old in numbered(path)}
    for held in table:
        if f"shard-{held.number:04d}" not in there:
            (path / directory_of(held.token)).mkdir(mode=0o700, exist_ok=True)
    _sync_directory(path)


def as_before(path: Path, identity: Identity, held: HeldRange) -> HeldRange:
    """A range for which there shall be a process again. One that the cluster was formatted with is
    that still, if its journal is there: what is in it begins with what needs no word of others."""
    before = None if identity.joined else identity.first_table().holding(held.token)
    is_there = os.path.lexists(path / directory_of(held.token))
    return replace(held, genesis=held.genesis or before is not None and is_there)


def _check_ranges(path: Path, identity: Identity, table: ProcessTable) -> None:
    """A log that is gone is not begun anew: with the name of this disk it would have a vote on what
    it has forgotten, unless another broker that is up remembers."""
    for held in table:
        if held.genesis and not os.path.lexists(path / directory_of(held.token)):
            advice = "an empty directory of that name gives up all that was in it"
            if identity.ring_size > 1:
                advice = f"this disk is lost: move {path} aside, and run barco replace"
            raise DataDirError(
                f"{path / directory_of(held.token)} is not there: it has the log of slices"
                f" {held.numbers[0]} to {held.numbers[-1]}. Bring it back; if it is lost, {advice}"
            )


def _rename(old: Path, new: Path) -> None:
    """A range has one log: where both names are there, somebody has to look which one it is."""
    if os.path.lexists(new):
        raise DataDirError(
            f"{old} and {new.name} are both there, and a range has one log: an earlier version of"
            f" barco has begun {old.name} beside the log, or it was copied. Look at what is in it,"
            f" and move it out of {old.parent}"
        )
    os.rename(old, new)
    _sync_directory(old.parent)


def _table_text(identity: Identity, table: ProcessTable, named: bool, format: int) -> str:
    of, processes = _facts(identity), to_plain(table)
    check = _check([of, processes])
    whole = {"format": format, "broker": of, "processes": processes, "check": check}
    return json.dumps(({JOURNALS: NAMED} if named else {}) | whole, indent=1)


def _facts(identity: Identity) -> str:
    """A checksum of what broker.json says for ever: it has none itself, for an earlier version has
    to be able to read which format it is."""
    return _check(asdict(identity) | {"format": 0})


def _check(said: Any) -> str:
    """Of what is said, however it is laid out."""
    return f"{crc32c(json.dumps(said, sort_keys=True).encode()):08x}"


def _write(path: Path, name: str, text: str) -> None:
    """All or nothing, and stable when it returns."""
    temporary = path / (name + NEW)
    with open(temporary, "w", encoding="ascii") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path / name)
    _sync_directory(path)


def claim(path: Path) -> int:
    """Lock the directory, before anything else is done to it.

    An absent directory is made; nothing is put into one that is neither empty nor ours.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.lexists(path / IDENTITY):
            _check_empty(path)
    except OSError as error:
        raise refusal(path, error) from None
    return open_lock(path)


def prepare(path: Path) -> None:
    """Check that the directory can be used, and make what a running broker needs in it."""
    if not path.is_dir():
        raise DataDirError(f"{path} is not a directory: pass another --data-dir")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise refusal(path, PermissionError(13, "Permission denied"))
    try:
        (path / RUN).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise refusal(path, error) from None


def _check_empty(path: Path) -> None:
    names = {entry.name for entry in path.iterdir()} - {LOCK, RUN, "lost+found", FIRST_USERS}
    if IDENTITY in names:
        raise DataDirError(f"{path} is already formatted")
    # Of a format, or of a directory's clearing, that was cut off.
    names -= {IDENTITY + NEW, PROCESSES, PROCESSES + NEW, ROUTES, ROUTES + NEW, ADDRESSES}
    names -= {each.name for each in path.glob(RANGES) if each.is_dir() and not any(each.iterdir())}
    if names:
        raise DataDirError(
            f"{path} is not empty and not a data directory of barco (it has {min(names)!r}):"
            " pass another --data-dir"
        )


def _plausible(identity: Identity) -> bool:
    for item in fields(identity):
        if type(getattr(identity, item.name)) is not item.type:
            return False
    return (
        is_uuid(identity.cluster_uuid)
        and is_uuid(identity.disk_uuid)
        and 1 <= identity.workers <= WORKERS_MAX
        and identity.workers <= identity.slices_per_range <= SLICES_PER_RANGE_MAX
        and identity.slices_per_range.bit_count() == 1
        and identity.ordinal >= 0
        and ring_size_valid(identity.ring_size)
        and (not identity.replaces or is_uuid(identity.replaces))
    )


def is_uuid(text: str) -> bool:
    """Whether this is how uuids are written here: 32 hexadecimal digits, lower case."""
    return len(text) == 32 and set(text) <= set("0123456789abcdef")


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
