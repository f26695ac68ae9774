"""A member that lies: it has the secret, the address and the disk of one, and says anything.

Frames are made with the real codecs and then mutated, so that they get as far as they can.
"""

import copy
import itertools
import os
import random
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack
from crc32c import crc32c
from replicas import HOSTS, Member, Shard

from barco.model.generation import (
    Ballot,
    Generation,
    Gid,
    GroupHead,
    Identity,
    Kind,
    Parent,
    Successor,
)
from barco.model.placement import Placement
from barco.model.token import TOKEN_MIN
from barco.protocol import append_frame, door, frame
from barco.protocol import replication as r
from barco.protocol.append_frame import Append, Appended
from barco.protocol.link import HAND_OFF, REPLICATION, RPC, Hello
from barco.protocol.replication_codec import to_map
from barco.workers.replication import wire

FAR = 2**62
NASTY: tuple[Any, ...] = (
    *(0, 1, -1, 255, 2**31 - 1, 2**32 - 1, 2**32, 2**63 - 1, 2**64 - 1, -(2**63), FAR),
    *(True, False, None, "", "x" * 300, "__topics", b"", b"\0" * 16, [], {}, [0, 1], 1.5),
)
OPERATIONS = (
    *("ping", "poll", "wait", "commit", "goodbye", "revoke", "start_group", "groups", "positions"),
    *("seek", "forget", "read", "plan", "topics", "topic_apply", "stats", "leaders", "staged"),
    *("staged_piece", "note", "note_set", "note_forget", "none"),
)


class Liar:
    """Plays broker 2 of a shard of which it knows everything."""

    def __init__(self, shard: Shard, seed: int) -> None:
        self.shard = shard
        self.me = shard.members[2]
        self.random = random.Random(seed)
        self.session = self.random.getrandbits(56) + 1
        self.said = 0
        self.sessions: dict[int, int] = {}
        """Of those that were dialled, as they said, by ordinal."""
        self.kinds: set[str] = set()
        """Of the replication messages that were said, mutated or not."""

    def dial(self, victim: Member, kind: str, worker: int = 2, ordinal: int = 2) -> socket.socket:
        """A link of this kind, proved like any other, as this process of broker 2, or of another
        one, from its address."""
        hello = Hello(
            kind=kind,
            cluster_uuid=self.shard.cluster_uuid,
            ordinal=ordinal,
            disk_uuid=self.shard.members[ordinal].disk_uuid,
            worker=worker,
            token=TOKEN_MIN,
            session=self.session,
            ring_size=3,
            workers=1,
            slices_per_range=4,
        )
        end = socket.create_connection(
            (HOSTS[victim.ordinal], self.shard.replication_port + victim.ordinal),
            timeout=10.0,
            source_address=(HOSTS[ordinal], 0),
        )
        mine = frame.encode(hello.to_message() | {door.NONCE: os.urandom(door.NONCE_BYTES)})
        end.sendall(mine)
        stream = end.makefile("rb", buffering=0)
        (length,) = frame.LENGTH.unpack(exactly(stream, 4))
        theirs = exactly(stream, length)
        answer = frame.decode(theirs)
        assert "refused" not in answer, answer
        self.sessions[victim.ordinal] = int(answer["session"])
        exactly(stream, *frame.LENGTH.unpack(exactly(stream, 4)))
        proof = door.proof(b"", door.CALLER, mine[4:], theirs)
        end.sendall(frame.encode({door.PROOF: proof}))
        return end

    def say(self, victim: Member, kind: str, frames: list[bytes]) -> None:
        """On a link of its own; it may be closed at any of them."""
        try:
            with self.dial(victim, kind) as end:
                for each in frames:
                    end.sendall(each)
                    self.said += 1
                end.settimeout(0.02)
                end.recv(1)
        except OSError:
            pass

    # --- Replication --------------------------------------------------------------------------

    def generation(self, victim: Member) -> Generation:
        """The open one, as nearly as an outsider can know it."""
        lineage = victim.call("ping")["lineage"]
        epoch = max(int(each["epoch"]) for each in lineage)
        token = Placement(3, 4).token(0)
        members = tuple(
            Identity(each.ordinal, bytes.fromhex(each.disk_uuid))  # type: ignore[arg-type]
            for each in self.shard.members
        )
        end = int(Placement(3, 4).token(1))
        gid = Gid(token, epoch)  # type: ignore[arg-type]
        return Generation(gid, end, members[0], 1, members, ())

    def messages(self, known: Generation) -> list[tuple[r.Message, bytes]]:
        """One of each kind and of each known attack, with the group behind it."""
        gid, me = known.gid, known.members[2]
        ballot = Ballot(known.gid.epoch + 5, 2, self.session)  # type: ignore[arg-type]
        far_ballot = Ballot(2**40, 2, 9)  # type: ignore[arg-type]
        far = Gid(gid.token, FAR)  # type: ignore[arg-type]
        after = [self.child(known, tail, step) for tail in (0, 1, FAR) for step in (1, FAR)]
        odd = Successor(1, Kind.RELEAD, (self.child(known, 1, 1, end=known.gid.token + 1),))
        values = [Successor(c.parents[0].tail, Kind.RELEAD, (c,)) for c in after] + [odd]
        values.append(Successor(1, Kind.HANDOFF, ()))
        head = GroupHead(1, 0, 7, 4096)
        view = r.View(far, FAR, FAR, False, True, True)
        plain: list[r.Message] = [
            *(r.Decided(gid, value) for value in values),
            *(r.Fenced(gid, far_ballot, value) for value in values),
            *(r.Accept(gid, ballot, value, (0, 1, 2)) for value in values),
            *(r.Promise(gid, ballot, FAR, (ballot, value), False) for value in values),
            r.Prepare(gid, ballot),
            r.Prepare(gid, Ballot(2**62, 2, self.session)),  # type: ignore[arg-type]
            r.Prepare(far, ballot),
            r.Nack(gid, ballot, Ballot(2**62, 1, 1)),  # type: ignore[arg-type]
            r.Accepted(gid, ballot),
            Appended(gid, FAR),
            r.Gap(gid, FAR),
            r.Unknown(gid),
            r.Fetch(gid, 1, FAR),
            r.Expired(gid, 2, 1),
            *(r.Unwelcome(Identity(o, b"u" * 16), gid) for o in range(3)),  # type: ignore[arg-type]
            r.RolledBack(self.session, FAR // 2),
            *(r.Shrunk(each, much) for each in (gid, far) for much in (1, 2**31, FAR)),
            r.Ping(b"r" * 16, True, (0, 1), 2**62, 2**62, FAR, (view,)),
            r.Ping(b"", False, (0, 1, 2), 1, 2**63 - 1, 0, (view, view)),
        ]
        with_group: list[r.Message] = [
            Append(gid, self.session, head, 0),
            Append(gid, 1, head, FAR),
            r.Fetched(gid, head),
            r.Fetched(far, head),
        ]
        assert me.ordinal == 2
        return [(each, b"") for each in plain] + [(each, b"g" * 4096) for each in with_group]

    def child(self, known: Generation, tail: int, step: int, end: int = 0) -> Generation:
        """What this member would like to follow."""
        gid = Gid(known.gid.token, min(known.gid.epoch + step, 2**63 - 1))  # type: ignore[arg-type]
        parents = (Parent(known.gid, tail),)
        leader = known.members[2]
        return Generation(gid, end or known.end, leader, self.session, known.members, parents)

    def frames(self, known: Generation, count: int) -> Iterator[bytes]:
        """Each message as it is, then so many that are wrong somewhere."""
        sound = self.messages(known)
        for message, group in sound:
            self.kinds.add(type(message).__name__)
            yield wire.encode(message, len(group)) + group
        for _ in range(count):
            message, group = self.random.choice(sound)
            body = self.wrong(message)
            if self.random.random() < 0.1:
                at = self.random.randrange(len(body))
                body = body[:at] + self.random.randbytes(2) + body[at + 2 :]
            yield wire.HEAD.pack(len(body), len(group)) + body + group

    def wrong(self, message: r.Message) -> bytes:
        """One or two fields of it are anything; a checksum over them is right."""
        times = self.random.randrange(1, 3)
        if isinstance(message, (Append, Appended)):
            body = bytearray(append_frame.pack(message)[:-4])
            for _ in range(times):
                at = self.random.randrange(0, len(body), 4)
                size = self.random.choice((4, 8))
                value = self.random.choice([each for each in NASTY if type(each) is int])
                body[at : at + size] = (value % 2 ** (8 * size)).to_bytes(size, "little")
            return bytes(body) + crc32c(body).to_bytes(4, "little")
        given = msgpack.unpackb(msgpack.packb(to_map(message)))
        for _ in range(times):
            spoil(self.random, given)
        return msgpack.packb(given)

    # --- Hand-off and operations --------------------------------------------------------------

    def calls(self, count: int) -> Iterator[bytes]:
        """Calls into internal topics, and such as are wrong anywhere."""
        head = struct.Struct("<IBBBBQqQ16sIIII")
        poison = msgpack.packb({"topic": "t", "version": FAR, "compression": 7, "deleted": True})
        for number in range(count):
            topic = self.random.choice((b"other", b"__topics", b"__groups", b"__commits", b".."))
            values = [head.size + len(topic) + len(poison), 1, 0, 0, len(topic), number, 0, 0]
            values += [b"p" * 16, 0, self.random.randrange(4), 0, len(poison)]
            if number >= 10:
                at = self.random.choice((1, 2, 3, 5, 6, 7, 9, 10, 11, 12))
                bits = (32, 8, 8, 8, 8, 63, 62, 63, 0, 32, 32, 32, 32)[at]
                values[at] = self.random.getrandbits(self.random.randrange(1, bits + 1))
            yield head.pack(*values) + topic + poison

    def operations(self, count: int) -> Iterator[bytes]:
        """Each operation with arguments that are none, or nearly right."""
        record = {"topic": "t", "version": FAR, "changed_us": -1, "author": 0, "created_us": "x"}
        known: dict[str, Any] = {
            "topic": "t",
            "slice": 0,
            "offset": 0,
            "from": 0,
            "budget": 1,
            "stored": True,
            "record": record,
            "news": [[0, FAR, 2]],
            "group": "g",
            "to": "latest",
            "consumer": "c",
            "session": 1,
            "version": 0,
            "timeout": 0.01,
            "received": [],
        }
        for number in range(count):
            args = dict(known)
            if number >= len(OPERATIONS):
                spoil(self.random, args)
            op = OPERATIONS[number % len(OPERATIONS)]
            body = msgpack.packb({"id": number, "op": op, "args": args})
            yield struct.pack("<I", len(body)) + body

    def fence(self, victims: Sequence[Member], ended: threading.Event) -> None:
        """Valid ballots without end, each higher than the last, and nothing ever done with one."""
        ends = {victim: self.dial(victim, REPLICATION) for victim in victims}
        for step in itertools.count(1):
            if ended.wait(0.02):
                break
            gid = self.generation(victims[step // 8 % len(victims)]).gid
            ballot = Ballot(100 + step, 2, self.session)  # type: ignore[arg-type]
            for victim in victims:
                try:
                    ends[victim].sendall(wire.encode(r.Prepare(gid, ballot)))
                    self.said += 1
                except OSError:
                    ends[victim] = self.dial(victim, REPLICATION)
        for end in ends.values():
            end.close()

    def climb(self, victim: Member, steps: int, step: int) -> None:
        """Valid ballots, each so many rounds above the last, and then silence."""
        gid = self.generation(victim).gid
        with self.dial(victim, REPLICATION) as end:
            for number in range(1, steps + 1):
                ballot = Ballot(number * step, 2, self.session)  # type: ignore[arg-type]
                end.sendall(wire.encode(r.Prepare(gid, ballot)))
                self.said += 1

    def slander(self, victim: Member, count: int) -> None:
        """So often: its log has lost its end."""
        gid = self.generation(victim).gid
        words = (r.Shrunk(gid, FAR), r.Shrunk(gid, 2**31), r.RolledBack(self.session, FAR // 2))
        with self.dial(victim, REPLICATION) as end:
            for number in range(count):
                end.sendall(wire.encode(words[number % len(words)]))
                self.said += 1

    def slander_votes(self, victim: Member, count: int) -> None:
        """So often, each time of more votes: this very process has an old copy."""
        with self.dial(victim, REPLICATION) as end:
            session = self.sessions[victim.ordinal]
            for number in range(count):
                far = 2**20 + 10_000 * number if number < count - 1 else FAR - 1
                end.sendall(wire.encode(r.RolledBack(session, far)))
                self.said += 1

    def attack(self, victim: Member, count: int) -> None:
        """Everything once, and so many mutants of each kind of link."""
        known = self.generation(victim)
        for each in self.frames(known, count):
            self.say(victim, REPLICATION, [each])
        for each in self.calls(10 + count // 4):
            self.say(victim, HAND_OFF, [each])
        self.say(victim, RPC, list(self.operations(len(OPERATIONS) + count)))


def spoil(rng: random.Random, value: Any) -> None:
    """One field, however deep."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        below = value[key]
        if isinstance(below, (dict, list)) and below and rng.random() < 0.7:
            value = below
            continue
        if isinstance(value, dict) and rng.random() < 0.1:
            del value[key]
        else:
            value[key] = copy.deepcopy(rng.choice(NASTY))  # It may be spoilt itself.
        return


def exactly(stream: Any, size: int) -> bytes:
    got = b""
    while len(got) < size:
        piece = stream.read(size - len(got))
        assert piece, "it hung up within its greeting"
        got += piece
    return got
