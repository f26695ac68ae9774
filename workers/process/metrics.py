"""A broker's metrics: what its workers count, by name, and how it is told.

There are no labels that a client can invent, so the number of time series is fixed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from barco.workers.process.exposition import Family, Sample, histogram, text_of
from barco.workers.process.stages import STAGES, added

SERIES_MAX = 1_000
"""More names than this are a mistake; the rest is left out."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}", re.ASCII)

Stats = Mapping[str, Any]
"""Of one worker: numbers by name, and `stages`."""


class Gauge(NamedTuple):
    """A figure that goes up and down; what is not listed as one only grows."""

    help: str
    shared: bool = False
    """The same fact in every worker: the largest counts, not the sum."""
    name: str = ""
    """To be exposed under another name."""


GAUGES = {
    "answer_bytes": Gauge("Bytes of answers that their clients have not taken yet."),
    "body_memory_bytes": Gauge("Memory of request bodies under way."),
    "calls_waiting": Gauge("Produces that wait for the next leader of their slice."),
    "commit_marks": Gauge("Commits remembered: the last of each writer, topic and slice."),
    "connection_bytes": Gauge("Memory of what was received and is to be sent."),
    "connections": Gauge("Connections that are open.", name="connections_open"),
    "control_open": Gauge("Requests other than produces under way, waiting ones included."),
    "consumers_registered": Gauge("Consumers registered with the broker.", shared=True),
    "delayed_known": Gauge("Delayed events that are known one by one, of those that are led here."),
    "feed_bytes": Gauge("Bytes of events that are kept for listeners."),
    "feeds": Gauge("Slices, or whole topics, that somebody listens to."),
    "followers_live": Gauge("Followers that get every group as it is built, of shards led here."),
    "followers_not_live": Gauge("Followers that are down, fenced or catching up."),
    "group_offsets": Gauge("Group offsets kept: one for each group, topic and slice."),
    "held_bytes": Gauge("Bytes of groups that are built and not committed yet."),
    "held_groups": Gauge("Groups that are built and not committed yet."),
    "in_flight_bytes": Gauge("Bytes of groups on their way to the disk."),
    "index_entries": Gauge("Chunks of open segments in the index in memory."),
    "listeners": Gauge("Connections that listen to server-sent events."),
    "long_polls_waiting": Gauge("Waits for events to become stable, on all shards."),
    "process_open_fds": Gauge("Descriptors that the workers have open."),
    "process_max_fds": Gauge("Descriptors that they may have open."),
    "process_resident_bytes": Gauge("Resident memory of the workers, their arenas included."),
    "process_start_timestamp_seconds": Gauge(
        "When the youngest of the workers began, in seconds since 1970.", shared=True
    ),
    "producers": Gauge("Idempotent producers remembered."),
    "queued_bytes": Gauge("Bytes that wait for the next group."),
    "replicas_catching_up": Gauge("Replicas that lack groups of their shard's history."),
    "replicas_leading": Gauge("Replicas that lead their shard."),
    "replicas_suspect": Gauge("Replicas without a vote, as something of theirs is damaged."),
    "replication_groups_behind": Gauge("Groups that the slowest follower lacks.", shared=True),
    "replication_unclean_ends": Gauge(
        "Generations that ended on an operator's word, and logs set aside, as far as known."
    ),
    "replication_links_up": Gauge("Connections to replicas of other brokers."),
    "staged_bytes": Gauge("Bytes staged on disk for commits to come."),
    "staged_writes": Gauge("Writes that are staged."),
    "storage_buffer_bytes": Gauge("Read buffers in use."),
    "storage_damaged_segments": Gauge("Segments that are damaged and not repaired yet."),
    "storage_damaged_lineage_files": Gauge("Copies of lineage.log that the start has mended."),
    "storage_aside_sets": Gauge("Logs that were set aside, to be exported (barco recover)."),
    "storage_aside_bytes": Gauge("Bytes of the disk that logs take that were set aside."),
    "storage_doubtful_lineage": Gauge("Shards whose start found lineage.log damaged twice over."),
    "storage_free_bytes": Gauge("Free space of the file system.", shared=True),
    "storage_given_up_groups": Gauge("Groups given up with barco recover --accept-data-loss."),
    "storage_sealed_bytes": Gauge("Bytes in sealed segments."),
    "storage_sealed_segments": Gauge("Sealed segments."),
    "state_bytes": Gauge("Bytes of topics, producers and group offsets, as a segment opens with."),
    "disk_full": Gauge("Workers that refuse events, for their disk has no room."),
    "state_full": Gauge("Workers that take no further topics, producers or group offsets."),
    "mutual_tls_certificate_expires_timestamp_seconds": Gauge(
        "When the certificate between brokers ends, in seconds since 1970.", shared=True
    ),
    "tls_certificate_expires_timestamp_seconds": Gauge(
        "When the certificate ends, in seconds since 1970.", shared=True
    ),
    "tls_handshakes_open": Gauge("TLS handshakes under way."),
    "tls_handshakes_waiting": Gauge("Connections that wait for their TLS handshake to begin."),
    "topics": Gauge("Topics, internal ones included.", shared=True),
}

COUNTERS = {
    "internal_events_skipped": "Events of internal topics that were none, and passed over.",
    "aborted_requests": "Requests whose client went away before the answer.",
    "acknowledgement_bytes": "Bytes of acknowledgements for groups that were taken as they came.",
    "body_bytes_in": "Bytes of request bodies.",
    "bytes_out": "Bytes sent to clients and siblings.",
    "calls_given_back": "Produces given back to the sibling that had handed them over.",
    "calls_given_up": "Produces that waited too long for the next leader of their slice.",
    "calls_waited": "Produces that waited for the next leader of their slice.",
    "chunks": "Chunks written.",
    "connections_idle_closed": "Connections that were closed as idle, for new ones.",
    "connections_refused": "Connections refused with 503, as all others were busy.",
    "connections_shed": "Connections closed for what they held in memory.",
    "connections_total": "Connections accepted.",
    "control_requests": "Requests other than produces.",
    "delayed_cancelled": "Delayed events that were cancelled, and passed over when they were due.",
    "delayed_delivered": "Delayed events that went to their topic when they were due.",
    "delayed_lost": "Delayed events that retention had removed before they were due.",
    "duplicates": "Produces that were recognised as repeats.",
    "events": "Events written, to any of their copies.",
    "events_followed": "Those of them that were written for another leader.",
    "group_bytes": "Bytes appended to the log.",
    "groups": "Groups appended to the log.",
    "groups_followed": "Groups of a leader that were taken as they came, without a decision.",
    "handed_in": "Produces taken over from siblings.",
    "handed_out": "Produces handed to the sibling that owns the slice.",
    "listener_bytes_out": "Bytes of events sent to listeners.",
    "over_quota": "Requests refused for their user's quota of requests, bytes or connections.",
    "over_quota_kept": "Requests refused for a quota of topics, groups or staged bytes.",
    "process_cpu_seconds": "Seconds of a core that the workers have taken.",
    "problems": "Requests answered with a problem by the core.",
    "produce_requests": "Produce requests.",
    "replication_frames_dropped": "Frames for a replica that was too slow or away.",
    "replication_groups_served": "Groups sent to replicas that asked for them.",
    "replication_sent_bytes": "Bytes sent to replicas, but for acknowledgement_bytes.",
    "requests": "HTTP requests.",
    "spans_exported": "Spans of traced requests that a collector has taken.",
    "spans_lost": "Spans of traced requests that no collector took in time.",
    "staged_writes_committed": "Staged writes that were committed.",
    "staged_writes_expired": "Staged writes that nobody committed in time.",
    "storage_corrupt_chunks": "Chunks that failed their checksum, and were repaired or refused.",
    "storage_expired_bytes": "Bytes removed by retention.",
    "storage_expired_segments": "Segments removed by retention.",
    "storage_read_ahead_hits": "Reads answered from what was read ahead.",
    "storage_read_bytes": "Bytes read from disk for readers.",
    "storage_failed_repairs": "Attempts to repair a segment that no member could help with.",
    "storage_repaired_groups": "Damaged groups that were replaced by those of a member.",
    "storage_scrub_bytes": "Bytes of sealed segments read again to find damage.",
    "storage_scrub_passes": "Times that all sealed segments were looked through.",
    "storage_rebuilt_indexes": "Indexes that had to be made again from their segment.",
    "tls_cuts": "TLS connections that ended without saying so.",
    "tls_handshakes": "TLS handshakes that were finished.",
    "tls_handshakes_failed": "TLS connections that failed, by an error or an alert.",
    "tls_handshakes_late": "TLS handshakes that took too long.",
    "tls_handshakes_refused": "Connections closed as too many wait for a TLS handshake.",
    "tls_handshakes_resumed": "TLS handshakes that resumed an earlier session.",
    "tls_kernel_connections": "TLS connections whose answers the kernel has sealed.",
    "tls_plain_refused": "Connections that spoke without TLS to a port with it.",
    "turns": "Turns of the event loops.",
    "value_bytes": "Bytes of the events' values.",
    "values_checked": "Values that were compared with their schemas.",
    "values_flawed": "Those of them that were of none.",
}


GOSSIP_GAUGES = {
    "brokers_alive": "Brokers that are alive, this one included.",
    "brokers_down": "Brokers that are taken to be down.",
    "brokers_left": "Brokers that have stopped in an orderly way.",
    "brokers_suspect": "Brokers that are suspected to be down.",
    "fact_bytes": "Bytes of all that is known by gossip.",
    "facts": "Facts known by gossip.",
    "local_health": "0: well; above: this broker gives others more time, being late itself.",
}
GOSSIP_COUNTERS = {
    "bytes_received": "Bytes of gossip received.",
    "bytes_sent": "Bytes of gossip sent.",
    "connections": "Gossip connections made.",
    "denials": "Times this broker was suspected and denied it.",
    "downs": "Times this broker declared another one to be down.",
    "messages_dropped": "Messages that could not be sent.",
    "messages_received": "Messages of gossip received.",
    "messages_sent": "Messages of gossip sent.",
    "probes": "Probes of other brokers.",
    "probes_failed": "Probes that nobody answered, directly or for another.",
    "refusals": "Connections that were refused, here or there.",
    "suspicions": "Times another broker was suspected.",
}


STAGE = "produce_stage_seconds"
STAGE_HELP = "How long a stage of a produce took, of a request or of a group of them."
WHOLE = "produce_seconds"
WHOLE_HELP = "How long produces took, from their whole head to their answer."


def exposition(
    by_worker: Mapping[int, Stats],
    *,
    workers: int,
    about: Mapping[str, str],
    gossip: Mapping[str, int | float] | None = None,
    more: Iterable[Family] = (),
    each: bool = False,
    open_metrics: bool = False,
) -> bytes:
    """The text for these workers' counters; `workers` says how many there should be.

    about: the broker, as labels. gossip: the supervisor's figures, in a cluster. each: counters of
    each worker by itself. open_metrics: as that has it, not as Prometheus.
    """
    families = [
        Family("build", "info", "What the broker is.", [Sample(1, about)]),
        Family("workers", "gauge", "Workers that the broker has.", [Sample(workers)]),
        Family("workers_up", "gauge", "Workers that answered.", [Sample(len(by_worker))]),
        *_counted(by_worker, each=each),
        *_stages(by_worker),
        *_gossip(gossip or {}),
        *more,
    ]
    return text_of(families, open_metrics=open_metrics)


def _counted(by_worker: Mapping[int, Stats], *, each: bool) -> Iterator[Family]:
    numbers = {
        worker: {name: value for name, value in stats.items() if isinstance(value, int | float)}
        for worker, stats in sorted(by_worker.items())
    }
    names = sorted({name for stats in numbers.values() for name in stats})
    for name in [name for name in names if _NAME.fullmatch(name)][:SERIES_MAX]:
        values = {worker: stats[name] for worker, stats in numbers.items() if name in stats}
        gauge = GAUGES.get(name)
        if each:
            samples = [Sample(value, {"worker": str(at)}) for at, value in values.items()]
        else:
            shared = gauge is not None and gauge.shared
            samples = [Sample(max(values.values()) if shared else sum(values.values()))]
        if gauge is not None:
            yield Family(gauge.name or name, "gauge", gauge.help, samples)
        else:
            text = COUNTERS.get(name, name.replace("_", " ").capitalize() + ".")
            yield Family(name.removesuffix("_total"), "counter", text, samples)


def _stages(by_worker: Mapping[int, Stats]) -> Iterator[Family]:
    told = [stats["stages"] for stats in by_worker.values() if "stages" in stats]
    if not told:
        return
    samples: dict[str, list[Sample]] = {STAGE: [], WHOLE: []}
    for stage in STAGES:
        counts = added(each[stage][1] for each in told if stage in each)
        total = sum(each[stage][0] for each in told if stage in each)
        whole = stage == "whole"
        labels = {} if whole else {"stage": stage}
        samples[WHOLE if whole else STAGE] += histogram(labels, counts, total)
    yield Family(STAGE, "histogram", STAGE_HELP, samples[STAGE])
    yield Family(WHOLE, "histogram", WHOLE_HELP, samples[WHOLE])


def _gossip(gossip: Mapping[str, int | float]) -> Iterator[Family]:
    for name, value in sorted(gossip.items()):
        if name in GOSSIP_GAUGES:
            yield Family(f"gossip_{name}", "gauge", GOSSIP_GAUGES[name], [Sample(value)])
        elif name in GOSSIP_COUNTERS:
            yield Family(f"gossip_{name}", "counter", GOSSIP_COUNTERS[name], [Sample(value)])
