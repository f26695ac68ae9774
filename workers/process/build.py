"""What a worker is made of, as its options say: files, reactor, and the memory of each part."""

import logging

from barco import limits
from barco._native import Reactor
from barco.errors import OperatorError
from barco.model.delays import delay_us_max
from barco.model.options import WorkerOptions
from barco.model.ranges import first_ranges, peer_of
from barco.model.token import TOKEN_MIN
from barco.types import KiB, MiB
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.records import Claim, Home
from barco.workers.storage.files.spool import Spool
from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.storage.stores.retention import Policy

log = logging.getLogger("barco.worker")


def make_store(options: WorkerOptions, bulk: BulkIo) -> ReplicaStore:
    """The files of the worker's replica of a shard."""
    token = options.held.token
    store = ReplicaStore(
        layout.range_path(options.data_dir, token),
        bulk,
        cluster_uuid=bytes.fromhex(options.cluster_uuid),
        token=token,
        segment_bytes=options.segment_bytes,
        policy=Policy(
            hours=options.retention_hours,
            shard_bytes=options.retention_bytes // len(options.table),
            sole_member=options.ring_size == 1,
        ),
        on_error=lambda error: log.error(str(error)),
        claim=Claim(
            home=Home(options.disk_uuid, token),
            ordinal=options.process[0],
            named=options.journals_named,
        ),
    )
    if store.lineage.adopted:
        log.info("%s is of an earlier version: it says now whose it is", store.lineage.path)
    return store


def make_spool(options: WorkerOptions, bulk: BulkIo) -> Spool:
    """Where events wait for the commit of their write."""
    return Spool(layout.range_path(options.data_dir, options.held.token) / "staged", bulk)


def arena_bytes(options: WorkerOptions) -> int:
    """A quarter of the budget, a power of two, and room for three of the largest requests."""
    size = 8 * MiB
    while size * 2 <= options.memory_bytes // 4 or size < 3 * options.request_bytes_max:
        size *= 2
    return size


def read_bytes(options: WorkerOptions) -> int:
    """Buffers for reads from disk: an eighth of the budget, and room for the largest chunk.

    With the arena, bodies and answers (a quarter each) that leaves an eighth for the index and for
    Python; what lies free between the pieces in use is given back (footprint).
    """
    return max(options.memory_bytes // 8, 2 * options.event_bytes_max, 8 * MiB)


def make_reactor(options: WorkerOptions, session: int) -> Reactor:
    """The native loop, which has no generation yet; `session`: the start's own number."""
    slices = options.slices
    reactor = Reactor(
        engine=options.engine,
        arena_bytes=arena_bytes(options),
        request_bytes_max=options.request_bytes_max,
        event_bytes_max=options.event_bytes_max,
        body_memory_max=max(options.memory_bytes // 4, 2 * options.request_bytes_max),
        auto_create=options.auto_create,
        ring_size=options.ring_size,
        range_index=options.range_index,
        peer=options.peer,
        peers=options.peers,
        slices=options.slices_per_range,
        slice_first=slices.start,
        slice_last=slices.stop - 1,
        range_token=TOKEN_MIN,
        cluster_uuid=bytes.fromhex(options.cluster_uuid),
        session=session,
        epoch=0,
        connections_max=options.connections_max,
        compression=options.compression,
    )
    if options.never_split:  # There are no elections: who leads what is known from the start.
        for held in first_ranges(options.replicas):
            process = (options.process[0], held.number)
            endpoint = options.shard_endpoints.get(held.number, "")
            reactor.set_route(held.first, held.slices, peer_of(process), endpoint)
    hosts = ("localhost", options.advertise, *options.clients.get("hosts", ()))
    for name in filter(None, hosts):
        reactor.add_host(name)
    reactor.write_format(options.log_format)
    reactor.take_delays(delay_us_max(options.retention_hours))
    if options.ring_size > 1:
        reactor.park(int(1000 * limits.PRODUCE_WAIT_SECONDS))
    if options.access.get("required"):
        reactor.set_access(None)  # Closed until who may do what has been heard.
        reactor.take_certificates(options.access.get("certificates", False))
    return reactor


def state_bytes_max(options: WorkerOptions) -> int:
    """Of the state that opens a segment: beyond it clients add nothing, and nothing is joined."""
    return min(arena_bytes(options) // 2, options.segment_bytes // 4)


def bound_state(options: WorkerOptions, reactor: Reactor) -> None:
    """The state of the shard opens each segment, as one group: it must leave room for others.

    Raises OperatorError when it does not fit any more.
    """
    most = state_bytes_max(options)
    state = reactor.bound_state(most)
    if state > most * 3 // 2:
        raise OperatorError(
            f"the topics, producers and group offsets of this shard take {state // KiB} KiB, "
            f"for which these limits are too small: raise limits.memory_bytes (a worker's "
            f"{options.memory_bytes // MiB} MiB) and storage.segment_bytes "
            f"({options.segment_bytes // MiB} MiB) to what they were"
        )
