"""Every bound of barco, each with its reason, and the relations between them.

A bound that an operator may change is a knob: it is a key of `barco.config`, and what stands here
is its default and the range it may have. Everything else is fixed. A full buffer is back-pressure
(429 or 503, "not written"), never growth. Sizes are bytes and times seconds unless the name ends
in another unit.
"""

from barco.types import GiB, KiB, MiB

# --- Names and keys -------------------------------------------------------------------------

TOPIC_NAME_BYTES_MAX = 127
"""One length byte in a chunk, with a bit to spare; as PolarStreams has it."""

KEY_BYTES_MAX = 65_535
"""A partition key is a name, not a payload."""

CONSUMER_ID_BYTES_MAX = 128
GROUP_NAME_BYTES_MAX = 128
"""Both are kept in memory by every worker and shown in logs: short."""

TOPICS_MAX, PRODUCERS_RESTORED_MAX = 100_000, 131_072
"""Topics are labels in one log: this bounds the memory of their counters, nothing else."""

OFFSET_MAX = 2**63 - 1
"""Offsets and bytes of a slice; what has it as its end has none."""

GROUPS_MAX = 10_000
CONSUMERS_MAX = 20_000
CONSUMERS_PER_GROUP_MAX = 1_000
TOPICS_PER_CONSUMER_MAX, CONSUMER_WEIGHT_MAX = 64, 100
"""A million invented registrations must not fill the supervisor: new ones are refused with 429."""

USERS_MAX, GRANTS_MAX, ACCESS_BYTES_MAX, QUOTA_MAX = 1_000, 64, 256 * KiB, 2**40
"""All users are one event, which every process keeps, and looks through for each connection. A
quota is for a second; the core counts what an hour of it is worth in thousandths, in 63 bits."""

CONSUMER_SESSION_MS_MIN, CONSUMER_SESSION_MS_MAX = 5_000, 600_000
CONSUMER_SESSION_MS_DEFAULT = 30_000
"""Who has not been heard of for so long is no member any more. Below, the living look dead."""

LEADER_WAIT_SECONDS, PRODUCE_WAIT_SECONDS = 6.0, 4.0
"""A commit, or a change of a topic or a group, waits so long for the next leader of a slice: 3 s
until there is one (promise D8), and 2 s more until that one serves consumers. Produces: 4 s."""

CONSUMER_TELLS = 6
CONSUMER_TELLS_PEERS = 3
"""So often within its session time a broker's workers tell of a consumer that they hear of, and
their broker tells the others, at least: of the last sign, and how old it is."""

CONSUMER_LAG_SECONDS, TICK_SECONDS, LOOK_SECONDS_MIN = 2.0, 1.0, 0.1
"""A broker that was starved or stopped expires nobody for so long: it reads its news first. It
looks for sessions that have ended when one is due, so often at most; chores come each second."""

POSITIONS_MAX = 100_000
"""Group offsets in one worker, one for each (group, topic, slice), about 300 bytes each."""

POSITION_IDLE_DAYS = 30
"""Group offsets without a member for so long are forgotten: far beyond the default retention."""

# --- Requests (knobs: event_bytes_max, request_bytes_max, memory_bytes) ------------------------

EVENT_BYTES_MAX = 1 * MiB
EVENT_BYTES_MAX_FLOOR = 1 * KiB
EVENT_BYTES_MAX_CEILING = 64 * MiB
"""One event is held whole in memory, and in one chunk on disk."""

REQUEST_BYTES_MAX = 16 * MiB
REQUEST_BYTES_MAX_FLOOR = 64 * KiB
REQUEST_BYTES_MAX_CEILING = 256 * MiB
"""One request is all or nothing for its slice, so it has to fit into one group."""

MEMORY_BYTES = 256 * MiB
MEMORY_BYTES_FLOOR = 32 * MiB
MEMORY_BYTES_CEILING = 1024 * GiB
"""One budget for each worker: bodies under way, open chunks, recent groups, read-ahead."""

MEMORY_REQUESTS_MIN = 2
"""The budget holds at least this many requests of the largest size, or nothing would ever move."""

BATCH_EVENTS_MAX = 1 << 18
"""In one packed batch (413 above): sixty kilobytes may unpack to millions of empty events, which
cost whoever reads them a hundred bytes each. Above 65,536 a batch is cut into chunks."""

REQUEST_LINE_BYTES_MAX = 16 * KiB
HEAD_BYTES_MAX = 32 * KiB
HEADERS_MAX = 64
"""414 and 431. Browsers and proxies stay below 8 KiB; a head is held for each connection."""

CONFIG_BYTES_MAX = 1 * MiB
"""Of a configuration's file; the addresses of the largest ring need 600 KiB."""

CONFIG_KEY_DOTS_MAX = 16
"""In a key as it is written; broker.bind has one."""

TLS_HANDSHAKES_PER_SECOND, TLS_HANDSHAKES_PER_SECOND_MAX = 1_000, 100_000
TLS_HANDSHAKE_SECONDS, TLS_FILE_BYTES_MAX, TLS_WARN_DAYS = 10.0, 64 * KiB, 30
MUTUAL_HANDSHAKE_BYTES_MAX = MUTUAL_WRITE_BYTES_MAX = 64 * KiB
"""A third of a core; the rest, and who waits for how long: docs/tls.md."""

HOSTS_MAX = 1_000
"""Names in clients.hosts: each request's Host is looked up among them."""

CONNECTIONS_MAX = 10_000
CONNECTIONS_FLOOR = 16
"""For each worker, as far as the limit on open files allows it. Over it those who are idle make
room for new ones; where none is, those are refused with 503."""

FILES_OF_WORKER = 64
FILES_OF_PEER = 3
FILES_SPARE_SHARE = 8
"""What a process has open besides connections (segments, indexes, listeners, the loops' own), what
for each process of the cluster, and the part of the limit that the core keeps free (admit.c)."""

CROWDING_SECONDS = 60.0
"""How often it is said that connections were closed or refused for others."""

HEAD_SECONDS_MAX = 10.0
BODY_GRACE_SECONDS = 5.0
BODY_BYTES_PER_SECOND_MIN = 1 * KiB
"""Slowloris: a head must arrive in time, a body must keep moving after a short grace."""

POLL_WAIT_MS_MAX = 60_000
"""Proxies between cut idle connections after a minute or so."""

POLL_BYTES_DEFAULT = 1 * MiB
POLL_BYTES_MAX = 16 * MiB
"""Of what one poll or one read answers, as rendered; a single larger event is still served."""

JSON_DEPTH_MAX = 512
"""A deeper value is stored and served as text: readers' parsers give up near 1,000."""

# --- The log (knobs: segment_bytes, slices_per_range) ------------------------------------------

PAGE_BYTES = 4096
"""O_DIRECT: every group starts and ends on such a boundary."""

CHUNK_RAW_BYTES_MAX = 128 * KiB
"""Measured sweet spot of LZ4 and of readers: 64-128 KiB. A larger single event is the exception."""

GROUP_HEADER_BYTES = 128
GROUP_BYTES_MAX = 1024 * MiB
"""Four times the largest request allowed: nobody believes a header that says more."""
GROUPS_IN_FLIGHT_MAX = 3
"""Build the next group while one or two are on their way to the disk."""

SEGMENT_BYTES = 128 * MiB
SEGMENT_BYTES_FLOOR = 1 * MiB
SEGMENT_BYTES_CEILING = 4 * GiB
"""Recovery scans one unsealed segment: 128 MiB is well under a second. Positions in an index are
32-bit counts of 8 bytes, which would allow 32 GiB."""

SEGMENT_REQUESTS_MIN = 2
"""A segment holds its snapshot group and at least one group with the largest request."""

SLICES_PER_RANGE = 8
SLICES_PER_RANGE_MAX = 256
"""A power of two; fixed when the data directory is formatted."""

WORKERS_MAX = 128
"""One per core; a worker needs at least one slice."""

PROCESSES_MAX = 768
"""Of one broker: three for each worker, as many again while ranges that moved have history."""

RETENTION_HOURS = 168
RETENTION_HOURS_MAX = 24 * 366 * 100
RETENTION_BYTES = 0
"""Seven days and no bound on size; 0 means no limit for either."""

# --- Staged writes (Spark's sink) ---------------------------------------------------------------

WRITER_NAME_BYTES_MAX = 128
ATTEMPT_NAME_BYTES_MAX = 64
"""A query's or job's id and one try of one task: UUIDs with something in front."""

STAGED_WRITER_SHARE = 2
"""One writer has this part of what may be staged: one that is too large does not stop others."""

STAGED_BYTES_MAX = 32 * GiB
"""On the disk of one shard, of all writes: the data of a bulk load that its driver has not
committed yet. Above it 503 until something is committed, given up or expires."""

STAGED_PIECES_MAX = 200_000
"""Batches that wait, of all writes: about 300 bytes of memory each."""

STAGED_TOGETHER_MAX = 64
"""Batches in one request that stages them."""

STAGED_WRITES_MAX = 256
"""Each is a file that is kept open."""

STAGED_DISK_FREE_MIN = 512 * MiB
"""Left free by staging: what is acknowledged to producers comes first."""

STAGED_SECONDS_MAX = 3600.0
"""What nobody added to or committed for so long has no driver any more."""

STAGED_IDLE_SECONDS = 1500.0
"""Two signs of life that a job's tasks would have given by then: what is as idle goes when room is
needed, the oldest first."""

COMMIT_PART_BYTES = 8 * MiB
"""Of one group of a commit, stored. A slice's share of a commit that is not larger appears at once,
and a larger one in steps of this size. Other producers of the shard wait for one such write."""

COMMIT_ATTEMPTS_MAX = 10_000
"""Tasks of one job; with their names they fit into the body of one request."""

MARKS_BYTES_MAX = 16 * MiB
MARK_SECONDS_MIN = 600.0
"""What was committed last, for each (writer, topic, slice) of a shard: about 230 bytes, so some
70,000 of them, in each snapshot of the log. The oldest that is finished makes room for a new one,
unless it is younger than any driver's patience; then new writers are refused with 429, which takes
a hundred new ones in every second of ten minutes."""

MARK_NUMBERS_MAX = 2**18
"""Of one slice: three times what fits, for those that the log has yet to be told of are not used
again. What is above it in the log was not written by this program."""

# --- Frames between the processes of a broker ---------------------------------------------------

FRAME_BYTES_MAX = 8 * MiB
"""A view of 20,000 consumers is about 4 MiB. The length is checked before anything is allocated."""

FRAME_DEPTH_MAX = 8
"""Control messages are flat; nesting is how decoders are attacked."""

CHANNEL_BUFFER_BYTES_MAX = 4 * FRAME_BYTES_MAX
"""Unsent frames to one worker; a worker that reads nothing for so long is killed."""

LOG_LINE_BYTES_MAX = 8 * KiB
"""A log line never carries a payload; what is longer is cut."""

# --- Gossip between supervisors ------------------------------------------------------------------

BROKERS_MAX = 3 * 2**12
"""The largest ring (`barco.model.placement.RING_SIZE_MAX`)."""

GOSSIP_PROBE_SECONDS = 1.0
"""Each broker probes one other in this time, whatever the size of the cluster."""

GOSSIP_PROBE_ANSWER_SECONDS = 0.4
"""Then others are asked to try. A supervisor on a saturated core answers within 0.1 s; fail-over of
a shard does not wait for any of this: its replicas watch one another."""

GOSSIP_DEPUTIES = 3
"""How many others are asked to probe a silent broker before it is suspected."""

GOSSIP_RELAYS_MAX = 64
"""Probes for others under way; a flood of such requests is not passed on."""

GOSSIP_SUSPICION_FACTOR = 4
GOSSIP_SUSPICION_FACTOR_MAX = 6
"""A suspect has factor * log10(brokers) probe times to deny; so many times more while nobody else
suspects it too."""

GOSSIP_HEALTH_MAX = 8
"""Local health: the worse off a broker is itself, the longer (up to this) it waits for others."""

GOSSIP_LAG_SECONDS = 0.5
"""Woken later than this, a broker was starved or stopped: nobody else is to blame for the time."""

GOSSIP_REFUSED_SECONDS = 1.0
"""To deny, for a broker whose machine refuses the connection: nothing listens there any more."""

GOSSIP_TELL_SECONDS = 0.2
GOSSIP_TELL_FANOUT = 3
GOSSIP_TELL_FACTOR = 5
"""News goes to three others five times a second, from each broker factor * log10(brokers) times;
without news nothing is sent but probes."""

GOSSIP_DIRECT_BROKERS = 12
GOSSIP_DIRECT_SECONDS = 0.05
GOSSIP_DIRECT_RETRY_SECONDS = 1.0
"""Up to this many brokers news of one's own goes to all others at once, each acknowledges it, and
to each at most one message in this time; in larger clusters rumours have to do."""

GOSSIP_SYNC_SECONDS = 10.0
"""How often a broker compares all it knows with one other; longer in a large cluster."""

GOSSIP_RECONNECT_SECONDS = 2.0
"""How often one of the brokers that are down, or were never heard of, is tried."""

ROUTE_BYTES_MAX = 64
"""As msgpack: seven numbers and three members take 46 at most."""

TARGET_BYTES_MAX = 2 * MiB
"""Of the brokers that a cluster shall consist of: 150 bytes each, BROKERS_MAX of them."""

GOSSIP_FACT_BYTES_MAX = 20 * KiB
"""A broker's processes take 22 bytes each; 64 topics of a consumer with the longest names 9 KiB."""
GOSSIP_PIGGYBACK_BYTES_MAX = 8 * KiB
GOSSIP_PUSH_BYTES_MAX = 64 * KiB
GOSSIP_SYNC_BYTES_MAX = 256 * KiB
GOSSIP_FRAME_BYTES_MAX = 1 * MiB
"""What rides on a probe, a message of news, one step of anti-entropy; and no frame is larger."""

GOSSIP_QUEUE_BYTES_MAX = 4 * MiB
"""Unsent to one peer; past it messages to it are dropped, which gossip is made for."""

GOSSIP_CONNECTIONS_MAX = 128
"""Open at once; the longest unused one is closed for a new one."""

GREETING_BYTES_MAX = 1 * KiB
"""Of what a broker says before it has proved that it is one; nothing more is kept of it."""

FRAME_SECONDS_MAX = 10.0
"""A frame of another broker that has begun has to go on: after this, at 64 KiB/s at least."""

GOSSIP_HELLO_SECONDS_MAX = 5.0
GOSSIP_BACKOFF_SECONDS_MIN = 0.1
GOSSIP_BACKOFF_SECONDS_MAX = 2.0
"""For a connection and its greeting; between attempts, doubling."""

GOSSIP_TOMBSTONE_SECONDS = 660.0
"""How long it is remembered that a consumer has gone, for brokers that were cut off."""

CONSUMER_TOUCH_SECONDS = 30.0
"""How often the other brokers are told that a consumer is alive, at most."""

REGISTRATION_PEERS_SECONDS_MAX = 1.0
"""How long a registration waits for the other brokers; they learn of it later all the same."""

# --- The supervisor -------------------------------------------------------------------------------

HEARTBEAT_SECONDS = 1.0
HEARTBEAT_SILENCE_SECONDS_MAX = 15.0
"""A worker's turn of the loop is under a millisecond; 15 s of silence is a hang, not a load."""

WORKER_START_SECONDS_MAX = 120.0
"""Without a sign of life before `ready`: longer than any recovery that makes progress."""

RESTART_BACKOFF_SECONDS_MIN = 0.1
RESTART_BACKOFF_SECONDS_MAX = 5.0
"""Doubles with each death. A shard is away for as long as a restart takes: the first is quick."""

CRASH_LOOP_DEATHS = 5
CRASH_LOOP_SECONDS = 30.0
"""Five deaths in half a minute are not bad luck: stop, and let the last word be read."""

DRAIN_SECONDS_MAX = 25.0
"""Wait for a copy that catches up, answer what is in flight, hand over, seal, sync. Below the 45 s
after which systemd sends SIGKILL."""

READY_WORD_SECONDS = 5.0
"""How often systemd is told that a broker which waits for the others has not failed to start."""

VIEW_SECONDS_MAX = 5.0
"""How long a registration waits for every worker to have seen it; then it is answered 503."""

LISTEN_BACKLOG = 1024
"""Connections that wait while a worker restarts; the kernel's default bound is 4096."""

OPEN_WARNING_SECONDS = 60.0
"""How often a broker that listens to everyone without authentication says so."""

KERNEL_VERSION_MIN = (5, 10)
KERNEL_VERSION_FULL = (6, 1)
"""The epoll fallback needs 5.10 (pidfd, close_range); io_uring as barco uses it needs 6.1."""

# --- Fail-over ------------------------------------------------------------------------------------

PING_SECONDS = 0.2
"""Between the three members of a shard range; more often when something changes."""

SILENCE_SECONDS_MAX = 1.8
"""A peer that said nothing for so long is down. A saturated machine delays a process by 1.5 s; and
a pause or partition is to be taken over within 3 s."""

SILENCE_SECONDS_MIN = 1.0
SILENCE_GAPS = 4.0
PACE_SECONDS = 10.0
"""A peer that was punctual is down earlier: after so many times the longest gap between two of its
messages in the last 10 to 20 s, and never less than five pings."""

STALL_SECONDS_MAX = 1.0
"""A leader with a group waiting for so long tells that it is not committing (rule L4)."""

DOUBT_SECONDS_MAX = 0.6
"""How long a peer has to tell so, three pings, before the next in line acts: one that was itself
stalled first answers what had piled up."""

LISTEN_SECONDS = 0.5
"""A process that stood still for longer than STALL_SECONDS_MAX first reads what has piled up: it
would take over a range of which it lacks everything since, from a leader that it believes lost."""

PATIENCE_SECONDS = 0.5
"""Who has promised to another proposer gives it this time to come to a decision."""

DISTURBANCES_MAX = 4
"""Ballots that one member may send in the midst of others' work. Each costs a range at most
PATIENCE_SECONDS without writes, together less than 3 s; restarts come one at a time."""

DISTURBANCE_SECONDS = 5.0
"""After which one of them is forgotten."""

STEP_DOWN_SECONDS = 3.0
"""A leader with a group waiting for so long stops leading; its callers get "unknown"."""

IO_PAUSE_SECONDS = 60.0
"""A broker whose append failed does not lead for so long: a full disk is not soon empty again."""

REFUSALS_MAX = 3
"""A group that the log refused, damaged on its way perhaps, is fetched so often before its follower
takes no more of that leader."""

STEP_SECONDS_MAX = 0.25
"""The most that one step adds to the clock of the failure view: a process that was itself stopped
must not hold its own absence against the others."""

BACKOFF_SECONDS_MIN = 0.05
BACKOFF_SECONDS_MAX = 0.3
"""After a proposal lost against another one; random, so that they do not meet again."""

RESEND_SECONDS = 0.3
"""A request of the protocol that was not answered is repeated."""

ACCEPT_RESENDS_MAX = 4
"""After so many the proposer begins anew with a higher ballot: the groups up to its T may be with a
member that is gone, and then nobody can accept it. Fetching goes on meanwhile."""

RETURN_SECONDS = 1.0
"""An owner that is back and has caught up waits so long before it takes its range back."""

RETURN_GROUPS_MAX = 64
"""Caught up: no more groups behind than are fetched within a few milliseconds."""

JOIN_GROUPS_MAX = 128
"""A follower that is no further behind gets every group as it is built again, and what it lacks
from memory: the leader's arena and its queue bound the bytes."""

SCRUB_BYTES_PER_SECOND = 4 * MiB
DRAIN_BYTES_PER_SECOND, DRAIN_BYTES_PER_SECOND_FLOOR = 64 * MiB, 64 * KiB
"""A process reads sealed segments again to find damage: a terabyte in three days. And what it
copies for brokers that leave: half of what a line of 1 Gbit/s gives."""

FETCH_GROUPS_MAX = 128
"""Asked for at a time while catching up; the sender may bound them further by size."""

STATE_PART_BYTES = 256 * KiB
"""Of a state that is sent to another member: heartbeats and groups go in between."""

STATE_ANSWER_SECONDS = 5.0
"""For one member to send it: its last segment is read (less than a second), and a few MiB sent."""

STATE_WAIT_SECONDS = 10.0
"""Who is to lead waits so long for a state that nobody gives; then another leads."""

REPLICATION_QUEUE_BYTES_MAX = 16 * MiB
"""Groups that wait to be sent to one peer; a slower one gets the rest by asking for it. A quarter
of the smallest arena that holds such groups, so that they are still there when their turn comes."""

REPLICATION_PENDING_BYTES_MAX = 32 * MiB
"""Groups from peers that wait for the disk; then their connections are read no further."""

CONSUMER_CONTACT_SECONDS_MAX = 2.0
"""A leader serves group consumers only with a follower heard of so lately, and a new one waits for
as long: no two leaders hand out the same events."""

PORT_MAX = 65_535
SHARD_PORTS_FROM = 50
"""`--ports-from N` puts the shard endpoints at N + 50, as 9300 is to 9250."""

# --- Relations ----------------------------------------------------------------------------------

assert TOPIC_NAME_BYTES_MAX < 256 and GROUP_NAME_BYTES_MAX < 256
assert EVENT_BYTES_MAX_FLOOR <= EVENT_BYTES_MAX <= EVENT_BYTES_MAX_CEILING < 2**32
assert REQUEST_BYTES_MAX_FLOOR <= REQUEST_BYTES_MAX <= REQUEST_BYTES_MAX_CEILING < 2**32
assert MEMORY_BYTES_FLOOR <= MEMORY_BYTES <= MEMORY_BYTES_CEILING
assert SEGMENT_BYTES_FLOOR <= SEGMENT_BYTES <= SEGMENT_BYTES_CEILING <= 8 * 2**32
assert EVENT_BYTES_MAX <= REQUEST_BYTES_MAX, "one event is one request"
assert MEMORY_REQUESTS_MIN * REQUEST_BYTES_MAX <= MEMORY_BYTES
assert SEGMENT_REQUESTS_MIN * REQUEST_BYTES_MAX <= SEGMENT_BYTES
assert SEGMENT_BYTES % PAGE_BYTES == 0 and SEGMENT_BYTES_FLOOR % PAGE_BYTES == 0
assert GROUP_HEADER_BYTES % 8 == 0 and GROUP_HEADER_BYTES < PAGE_BYTES
assert SLICES_PER_RANGE.bit_count() == 1 and SLICES_PER_RANGE_MAX.bit_count() == 1
assert WORKERS_MAX <= SLICES_PER_RANGE_MAX and 2 * 3 * WORKERS_MAX <= PROCESSES_MAX
assert 22 * PROCESSES_MAX + KiB < GOSSIP_FACT_BYTES_MAX  # A broker tells of each.
assert CONSUMERS_PER_GROUP_MAX <= CONSUMERS_MAX and GROUPS_MAX <= CONSUMERS_MAX
assert 3 * HEARTBEAT_SECONDS <= HEARTBEAT_SILENCE_SECONDS_MAX <= WORKER_START_SECONDS_MAX
assert RESTART_BACKOFF_SECONDS_MIN <= RESTART_BACKOFF_SECONDS_MAX < CRASH_LOOP_SECONDS
# The back-offs before the last of these deaths have to fit into the window, or it never fires.
assert (CRASH_LOOP_DEATHS - 1) * RESTART_BACKOFF_SECONDS_MAX < CRASH_LOOP_SECONDS
assert REQUEST_BYTES_MAX_CEILING < STAGED_BYTES_MAX and REQUEST_LINE_BYTES_MAX <= HEAD_BYTES_MAX
assert COMMIT_ATTEMPTS_MAX * (ATTEMPT_NAME_BYTES_MAX + 3) < 1 * MiB, "one PUT names them all"
assert GOSSIP_TELL_SECONDS < GOSSIP_PROBE_ANSWER_SECONDS < GOSSIP_PROBE_SECONDS
assert GOSSIP_FACT_BYTES_MAX < GOSSIP_PUSH_BYTES_MAX < GOSSIP_SYNC_BYTES_MAX
assert 2 * GOSSIP_SYNC_BYTES_MAX < GOSSIP_FRAME_BYTES_MAX <= FRAME_BYTES_MAX
assert REGISTRATION_PEERS_SECONDS_MAX < VIEW_SECONDS_MAX < HEARTBEAT_SILENCE_SECONDS_MAX
assert CONSUMER_SESSION_MS_MIN <= CONSUMER_SESSION_MS_DEFAULT <= CONSUMER_SESSION_MS_MAX
assert CONSUMER_SESSION_MS_MAX < 1000 * GOSSIP_TOMBSTONE_SECONDS
assert KERNEL_VERSION_MIN <= KERNEL_VERSION_FULL
assert 4 * PING_SECONDS <= SILENCE_SECONDS_MIN < SILENCE_SECONDS_MAX
assert STALL_SECONDS_MAX <= SILENCE_SECONDS_MIN, "whom others took over from listens first"
assert 2 * PING_SECONDS <= DOUBT_SECONDS_MAX and PING_SECONDS <= STEP_SECONDS_MAX
assert SILENCE_SECONDS_MAX + PING_SECONDS + BACKOFF_SECONDS_MAX < 3.0, "the bar for a partition"
assert STALL_SECONDS_MAX + DOUBT_SECONDS_MAX < STEP_DOWN_SECONDS
assert BACKOFF_SECONDS_MIN < BACKOFF_SECONDS_MAX
