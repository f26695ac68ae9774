"""How a write of many tasks becomes visible: options, what tasks report, and the two steps.

Tasks stage batches at the shards that own them (`barco.spark.write.stage`), under (writer, batch)
and a name of their own; what they report names the winners. The driver then has every shard
*prepare*: the counts are compared, and what is staged is made stable. Only when all have done so
*it has every
shard *commit*. Each shard stores its share with a mark, so both steps can be repeated for as long
as it takes, by this driver or by the next one (workers/writes/staging.py). In a cluster every
process that holds a shard has a copy, two of three prepare, and the one that leads commits,
whoever that is.

- A stream's writer is the id of its query, which is in its checkpoint, and its batch is Spark's:
  a batch that is run again after a crash is stored once, as long as its plan is deterministic (the
  same rows, in any order), which Spark's offset log makes it.
- A batch write's writer is made for each job; `writerId` (and `batchId`) name it, so that a job
  which is run again as a whole, with the same rows, stores them once as well.
"""

import json
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from barco.client.wire.access import Access
from barco.client.wire.blocking import Link
from barco.client.wire.http1 import Request, Response
from barco.client.wire.ring import Ring, ring_from_topology
from barco.errors import BarcoError, PeerError
from barco.limits import WRITER_NAME_BYTES_MAX
from barco.spark.base.fetch import Brokers
from barco.spark.base.options import DEFAULT_ACCESS, OptionError, Reading, access_of
from barco.spark.write.earlier import Earlier, earlier_of
from barco.spark.write.shares import (
    MovedError,
    Shares,
    Staged,
    WriteShare,
    cut_anew,
    is_parted,
    needed_of,
)
from barco.types import KiB

SOCKET_SECONDS = 60.0
PAUSE_FIRST_S, PAUSE_MAX_S = 0.05, 1.0
ABORT_SECONDS = 5.0
SHARDS_AT_ONCE = 16
PATIENCE_SECONDS = 2.0
"""With a process that holds a copy, once enough others have theirs."""
RETRIED = (429, 500, 502, 503, 504, 507)
PIECE_BYTES = 512 * KiB
"""Values of one staged batch, which is one stored chunk: what readers like best."""

PASSED_OVER = (
    "batch %d of writer %s is not stored, or not all of it: its batch %d was stored before, and "
    "batches of a writer go up. Give it a higher batchId, or another writerId."
)

SKIPPED = (
    "batch %d of writer %s is skipped, as option skipBatch says: %d events of an earlier run of it "
    "are stored, and those of this run are dropped. Leave the option away from now on."
)

_log = logging.getLogger("barco.spark")
_WRITER = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.:-]+", re.ASCII)
_TOPIC = re.compile(r"(?!__)(?!\.{1,2}\Z)[A-Za-z0-9_.-]{1,127}", re.ASCII)


class CommitError(BarcoError):
    """A write was not committed, or not everywhere; the text says what follows from that."""

    slug = "commit"
    title = "The write was not committed"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a write, checked. Made on the driver, and sent to the tasks."""

    access: Access = DEFAULT_ACCESS
    topic: str | None = None
    """None: the rows have a column that says it."""
    writer: str = ""
    batch: int = 0
    timeout_s: float = 120.0
    """How long a shard that does not answer is waited for."""
    piece_bytes: int = PIECE_BYTES
    acceleration: int = 8
    """LZ4's: 8 is what the broker itself uses; 0 leaves values as they are."""
    skip: int | None = None
    """A batch that counts as stored, whatever rows it has now."""

    def skips(self, batch: int) -> bool:
        """Whether the rows of a batch are not written, as the user has said."""
        return self.skip == batch

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "WriteOptions":
        """The options; OptionError if one is wrong or unknown."""
        reading = Reading(given)
        by_path = reading.take("path", _topic, None)
        options = cls(
            access=access_of(reading),
            topic=reading.take("topic", _topic, by_path),
            writer=reading.take("writerId", _writer, ""),
            batch=reading.take("batchId", _batch, 0),
            timeout_s=(reading.number("writeTimeoutMs", None) or 120_000) / 1000,
            piece_bytes=min(reading.number("pieceBytes", None) or PIECE_BYTES, PIECE_BYTES),
            acceleration=reading.take("lz4Acceleration", _acceleration, 8),
            skip=reading.take("skipBatch", _batch, None),
        )
        reading.take("checkpointLocation", str, "")
        reading.refuse_the_rest()
        if options.batch and not options.writer:
            raise OptionError("option batchId: give writerId as well")
        return options


def _topic(text: str) -> str | None:
    if not _TOPIC.fullmatch(text):
        raise ValueError(f"{text!r} is no name of a topic")
    return text


def _writer(text: str) -> str:
    if len(text) > WRITER_NAME_BYTES_MAX or not _WRITER.fullmatch(text):
        raise ValueError(f"1 to {WRITER_NAME_BYTES_MAX} of letters, digits, '_', '.', ':' and '-'")
    return text


def _batch(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**63:
        raise ValueError("a whole number from 0")
    return value


def _acceleration(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 64:
        raise ValueError("a whole number from 0 to 64")
    return value


def new_writer() -> str:
    """A name that nobody else has."""
    return f"job-{uuid.uuid4()}"


def new_attempt(partition: int) -> str:
    """A name for one try of one task. Spark's own numbers begin again with each driver."""
    return f"{partition}-{uuid.uuid4().hex}"


def ring_of(options: WriteOptions) -> Ring:
    """Every slice and the endpoint of its owner, as any of the brokers tells it."""
    return ring_from_topology(Brokers(options.access, options.timeout_s).get("/v1/topology"))


class Shard:
    """Requests to one shard endpoint, repeated until they have an answer that means something."""

    def __init__(
        self,
        access: Access,
        endpoint: str,
        timeout_s: float,
        sleep: Callable[[float], None] = time.sleep,
        socket_s: float = SOCKET_SECONDS,
    ) -> None:
        self.endpoint = endpoint
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._link = Link(access, endpoint, timeout_s=socket_s)

    def put(self, path: str, body: bytes, kind: str) -> Response:
        """The answer, other than "not now"; PeerError if there is none in time.

        Only for what can be sent twice. A broken connection may mean that it was done.
        """
        deadline = time.monotonic() + self._timeout_s
        pause = PAUSE_FIRST_S
        while True:
            try:
                answer = self.once(path, body, kind)
                if answer.status not in RETRIED:
                    return answer
                said = answer.words
            except OSError as error:
                said = str(error) or type(error).__name__
            if time.monotonic() + pause > deadline:
                raise PeerError(f"{self.endpoint} did not take {path.partition('?')[0]}: {said}")
            self._sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)

    def once(self, path: str, body: bytes, kind: str) -> Response:
        """The answer, whatever it is; OSError if there is none."""
        return self._once("PUT", path, body, {"Content-Type": kind})

    def delete(self, path: str) -> bool:
        """Once; whether there is nothing of it any more."""
        try:
            return self._once("DELETE", path, b"", {}).status in (204, 404)
        except OSError:
            return False
        finally:
            self._link.close()

    def close(self) -> None:
        """Closes the connection."""
        self._link.close()

    def _once(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Response:
        return self._link.exchange(Request(method, path, tuple(headers.items()), body))


def write_path(writer: str, batch: int) -> str:
    """Where a write is at every shard endpoint."""
    return f"/v1/writes/{quote(writer)}/{batch}"


def commit(options: WriteOptions, batch: int, staged: Sequence[Staged]) -> int:
    """Makes what the tasks staged visible: all of it, once. Returns how many events.

    A batch that is lower than one that the writer stored before is passed over, with a warning.

    CommitError: something that was staged is gone, a shard did not answer in time, or an earlier
    run stored other rows under the same name.
    """
    if options.skips(batch):
        for writer in {each.writer for each in staged}:
            _skip(options, writer, batch)
        return 0
    shares: Shares = {}
    for task in sorted(staged, key=lambda each: each.partition):
        for home in task.rows:
            holders = task.holders.get(home, (home,))
            of = home, task.tokens[home]
            shares.setdefault(of, WriteShare(*of, holders)).add(task)
    if not shares:
        return 0
    if is_parted(shares):
        cut_anew(shares, ring_of(options))
    path = write_path(staged[0].writer, batch)
    alone = len(shares) == 1 and all(len(share.holders) == 1 for share in shares.values())
    with ThreadPoolExecutor(min(SHARDS_AT_ONCE, len(shares))) as pool:
        for step, act in (("prepared", _prepare), ("committed", _commit)):
            if step == "prepared" and alone:
                continue
            errors = _everywhere(pool, act, options, path, shares)
            begun = step == "committed" and not (alone and isinstance(errors[0], CommitError))
            _collect(begun, staged[0], options, batch, shares.values(), errors)
    passed = [share.later for share in shares.values() if share.later is not None]
    if passed:
        _log.warning(PASSED_OVER, batch, staged[0].writer, max(passed))
    rows = [share.rows for share in shares.values()]
    return sum(n for topics in rows for slices in topics.values() for n in slices.values())


def _everywhere(
    pool: ThreadPoolExecutor,
    act: Callable[[WriteOptions, str, WriteShare], None],
    options: WriteOptions,
    path: str,
    shares: Shares,
) -> list[BaseException | None]:
    """Has each share take a step. If slices have moved meanwhile, all are cut anew, by who holds
    them now, and take it again, which changes nothing where it was taken."""
    until = time.monotonic() + options.timeout_s
    while True:
        asked = [pool.submit(act, options, path, share) for share in shares.values()]
        errors = [each.exception() for each in asked]
        if not any(isinstance(each, MovedError) for each in errors) or time.monotonic() > until:
            return errors
        time.sleep(PAUSE_FIRST_S)
        cut_anew(shares, ring_of(options))


class _Preparing(threading.Thread):
    """Has one process prepare. Nobody waits for one that hangs."""

    def __init__(self, options: WriteOptions, path: str, endpoint: str, body: bytes) -> None:
        super().__init__(name=f"barco-prepare-{endpoint}", daemon=True)
        self.error: BaseException | None = None
        self._given_up = threading.Event()
        self._shard = Shard(options.access, endpoint, options.timeout_s, self._sleep)
        self._request = (path, body, "application/json")
        self.start()

    def run(self) -> None:
        try:
            answer = self._shard.put(*self._request)
            if answer.status != 200:
                kind = MovedError if answer.status == 421 else CommitError
                self.error = kind(f"{self._shard.endpoint}: {answer.words}")
        except BaseException as error:  # noqa: BLE001 - raised by the driver's thread.
            self.error = error
        finally:
            self._shard.close()

    def give_up(self) -> None:
        """It is not tried again."""
        self._given_up.set()

    def _sleep(self, seconds: float) -> None:
        if self._given_up.wait(seconds):
            raise CommitError("others have prepared")


def _prepare(options: WriteOptions, path: str, share: WriteShare) -> None:
    """Returns when enough of the copies are stable."""
    body = share.body("prepared")
    asked = [_Preparing(options, path, endpoint, body) for endpoint in share.ready]
    needed, patience = needed_of(share.holders), None
    while running := [each for each in asked if each.is_alive()]:
        running[0].join(0.02)
        done = [each for each in asked if not each.is_alive() and each.error is None]
        if len(done) >= needed:
            patience = patience or time.monotonic() + PATIENCE_SECONDS
            if time.monotonic() > patience:
                break
        elif any(isinstance(each.error, MovedError) for each in asked):
            break  # Others hold it, and may be there.
    for each in asked:
        each.give_up()
    done = [each for each in asked if not each.is_alive() and each.error is None]
    errors = [each.error for each in asked if each.error is not None]
    if len(done) < needed:
        raise next((each for each in errors if isinstance(each, MovedError)), errors[0])


def _commit(options: WriteOptions, path: str, share: WriteShare) -> None:
    """Has whoever leads the shard commit; returns when that is done."""
    body = share.body("committed")
    deadline = time.monotonic() + options.timeout_s
    pause, turn = PAUSE_FIRST_S, 0
    while True:
        endpoint = share.holders[turn % len(share.holders)]
        turn += 1
        shard = Shard(options.access, endpoint, options.timeout_s)
        try:
            answer = shard.once(path, body, "application/json")
        except OSError as error:
            said = f"{endpoint}: {error or type(error).__name__}"
        else:
            said = f"{endpoint}: {answer.words}"
            owner = answer.problem.get("owner") if answer.status == 421 else None
            if answer.status == 200:
                share.later = later_of(json.loads(answer.body), share.rows)
                break
            if owner in share.holders:
                turn = share.holders.index(owner)
            elif owner is not None:
                raise MovedError(said)
            elif answer.status not in RETRIED and answer.status != 421:
                raise CommitError(said)
        finally:
            shard.close()
        if time.monotonic() + pause > deadline:
            raise PeerError(f"nobody committed it for {options.timeout_s:g} s: {said}")
        time.sleep(pause)
        pause = min(2 * pause, PAUSE_MAX_S)
        if turn % len(share.holders) == 0 and _has_moved(options, share):
            raise MovedError(said)
    for other in share.holders:  # What is left there goes later, if it does not go now.
        if other not in share.missed | {endpoint}:
            _give_up(options, other, path, PATIENCE_SECONDS)


def _has_moved(options: WriteOptions, share: WriteShare) -> bool:
    """Whether others hold it now, as far as anybody tells: those that did may all be gone."""
    try:
        ring = ring_of(options)
    except (BarcoError, OSError):
        return False
    return any(holders != share.holders for holders, *_ in share.by_holders(ring))


def later_of(told: Mapping[str, Any], topics: Iterable[str]) -> int | None:
    """The later batch that a write was passed over for, in one of these topics."""
    found = [int(told["laterBatches"][each]) for each in topics if each in told["laterBatches"]]
    return max(found, default=None)


def _collect(
    begun: bool,
    staged: Staged,
    options: WriteOptions,
    batch: int,
    shares: Iterable[WriteShare],
    errors: Iterable[Any],
) -> None:
    found = [error for error in errors if error is not None]
    if not found:
        return
    if not begun:
        what = _standing(options, staged, batch, shares)
    else:
        what = (
            f"it may be visible in part: run it again with writerId={staged.writer} to complete it"
        )
    raise CommitError(f"The write was not committed, {what}. {found[0]}") from found[0]


def _skip(options: WriteOptions, writer: str, batch: int) -> None:
    """The batch counts as stored, because the option says so and something of it is."""
    earlier = earlier_of(options.access, write_path(writer, batch), ring_of(options))
    if not earlier.known:
        unsure = "" if earlier.all_told else ", or its shard does not answer"
        raise CommitError(
            f"option skipBatch={batch}: nothing of batch {batch} of writer {writer} is "
            f"stored{unsure}, so its rows would be lost: leave the option away"
        )
    _log.warning(SKIPPED, batch, writer, sum(earlier.stored.values()))


def _standing(
    options: WriteOptions, staged: Staged, batch: int, shares: Iterable[WriteShare]
) -> str:
    """What an earlier run of a write has left, in words."""
    wanted = {
        (share.home, topic, index): count
        for share in shares
        for topic, slices in share.rows.items()
        for index, count in slices.items()
    }
    try:
        earlier = earlier_of(options.access, write_path(staged.writer, batch), ring_of(options))
    except (BarcoError, OSError):
        earlier = Earlier(all_told=False)
    return earlier.words(staged.writer, batch, wanted)


def abort(options: WriteOptions, writer: str, batch: int) -> None:
    """Gives up what tasks staged, as far as shards answer; the rest expires there."""
    try:
        ring = ring_of(options)
    except (BarcoError, OSError):
        return
    path = write_path(writer, batch)
    for leader, holders in sorted(
        {(ring.endpoints[key], ring.holders[key]) for key in ring.slices}
    ):
        # A copy may be needed by the next leader of what this one has begun.
        if _give_up(options, leader, path, ABORT_SECONDS):
            for other in holders:
                if other not in ring.away | {leader}:
                    _give_up(options, other, path, ABORT_SECONDS)


def _give_up(options: WriteOptions, endpoint: str, path: str, seconds: float) -> bool:
    """Has one process forget a write, if it answers; whether it has nothing of it any more."""
    return Shard(options.access, endpoint, seconds, socket_s=seconds).delete(path)


def staged_of(messages: Sequence[Any]) -> list[Staged]:
    """The reports among Spark's messages: a task that did not end has none."""
    return [message for message in messages if isinstance(message, Staged)]
