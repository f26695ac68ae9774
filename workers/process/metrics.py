"""Prometheus text exposition (format 0.0.4) of a broker's counters, over all of its workers.

No name of one is a client's, so the number of time series is fixed; but for the lag of groups, of
which there are `LAGS_MAX` at most.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SERIES_MAX = 1_000
"""More names than this are a mistake; the rest is left out."""

GROUP_LAG = "group_lag"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}", re.ASCII)


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
    "commit_marks": Gauge("Commits remembered: the last of each writer, topic and slice."),
    "connection_bytes": Gauge("Memory of what was received and is to be sent."),
    "connections": Gauge("Connections that are open.", name="connections_open"),
    "control_open": Gauge("Requests other than produces under way, waiting ones included."),
    "consumers_registered": Gauge("Consumers registered with the broker.", shared=True),
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
    "process_resident_bytes": Gauge("Resident memory of the workers, their arenas included."),
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
    "chunks": "Chunks written.",
    "connections_idle_closed": "Connections that were closed as idle, for new ones.",
    "connections_refused": "Connections refused with 503, as all others were busy.",
    "connections_shed": "Connections closed for what they held in memory.",
    "connections_total": "Connections accepted.",
    "control_requests": "Requests other than produces.",
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
    "tls_plain_refused": "Connections that spoke without TLS to a port with it.",
    "turns": "Turns of the event loops.",
    "value_bytes": "Bytes of the events' values.",
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


def exposition(
    by_worker: Mapping[int, Mapping[str, int | float]],
    *,
    workers: int,
    version: str,
    gossip: Mapping[str, int | float] | None = None,
) -> bytes:
    """The text for these workers' counters; `workers` says how many there should be.

    gossip: the supervisor's figures, in a cluster.
    """
    lines = _series("build_info", "gauge", "The version of barco.", 1, f'{{version="{version}"}}')
    lines += _series("workers", "gauge", "Workers that the broker has.", workers)
    lines += _series("workers_up", "gauge", "Workers that answered.", len(by_worker))
    names = sorted({name for stats in by_worker.values() for name in stats})
    for name in [name for name in names if _NAME.fullmatch(name)][:SERIES_MAX]:
        values = [stats[name] for stats in by_worker.values() if name in stats]
        if (gauge := GAUGES.get(name)) is not None:
            value = max(values) if gauge.shared else sum(values)
            lines += _series(gauge.name or name, "gauge", gauge.help, value)
        else:
            text = COUNTERS.get(name, name.replace("_", " ").capitalize() + ".")
            lines += _series(name.removesuffix("_total") + "_total", "counter", text, sum(values))
    for name, value in sorted((gossip or {}).items()):
        if name in GOSSIP_GAUGES:
            lines += _series(f"gossip_{name}", "gauge", GOSSIP_GAUGES[name], value)
        elif name in GOSSIP_COUNTERS:
            lines += _series(f"gossip_{name}_total", "counter", GOSSIP_COUNTERS[name], value)
    return ("\n".join(lines) + "\n").encode()


def lag_exposition(lags: Iterable[tuple[str, str, str, int, int]]) -> bytes:
    """And of groups: (group, topic, token, slice, events that are not committed) of each position.

    Names of groups are clients' own: printable ASCII, but for quotes nothing is to be escaped.
    """
    help_ = "Events of a slice that the group has not committed."
    lines = [f"# HELP barco_{GROUP_LAG} {help_}", f"# TYPE barco_{GROUP_LAG} gauge"]
    for group, topic, token, index, lag in lags:
        name = group.replace("\\", r"\\").replace('"', r"\"")
        labels = f'group="{name}",topic="{topic}",token="{token}",slice="{index}"'
        lines.append(f"barco_{GROUP_LAG}{{{labels}}} {lag}")
    return ("\n".join(lines) + "\n").encode()


def _series(name: str, kind: str, text: str, value: float, labels: str = "") -> list[str]:
    return [
        f"# HELP barco_{name} {text}",
        f"# TYPE barco_{name} {kind}",
        f"barco_{name}{labels} {value}",
    ]
