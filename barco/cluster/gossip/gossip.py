"""The gossip of one broker: membership, spreading of facts, comparing with others.

A pure machine: messages, events and `now` go in, effects come out. Its cost does not grow with the
cluster: a probe a second, rumours to a few others while there are any, one comparison now and then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from barco import limits
from barco.cluster.gossip.direct import Direct, Receipt
from barco.cluster.gossip.dissemination import Store
from barco.cluster.gossip.facts import BROKER, BUCKETS, LEFT, BrokerInfo, Fact, following, newer
from barco.cluster.gossip.membership import Membership, Random
from barco.errors import ProtocolError
from barco.protocol.gossip import (
    Ack,
    Message,
    Ping,
    PingRequest,
    Push,
    PushAck,
    Sync,
    SyncReply,
)

BULK_FACTS = 256


class Send(Struct, frozen=True):
    """A message for another broker."""

    ordinal: int
    message: Message


class Changed(Struct, frozen=True):
    """Something is known better than before; `news` of other brokers', or this one's own."""

    fact: Fact
    before: Fact | None
    news: bool


class AckWanted(Struct, frozen=True):
    """`Gossip.acknowledge` is to be called when the workers have what changed so far."""

    ordinal: int
    number: int


class Delivered(Struct, frozen=True):
    """A publication has reached all other brokers that are up; or time is over.

    `all`: whether each of them has said so. In a large cluster nobody does, and nobody is missing.
    """

    receipt: int
    all: bool
    missing: tuple[int, ...] = ()


Effect = Send | Changed | AckWanted | Delivered


class Gossip:
    """One broker's end of the gossip.

    me: its own identity, with an incarnation that is likely larger than that of its last life.
    ring: how many brokers are listed and looked for. most: all others have a lower ordinal.
    accept: whether a fact that came from others is worth keeping, and the ordinal of who told it.
    """

    def __init__(
        self,
        me: BrokerInfo,
        ring: int,
        *,
        random: Random,
        now: float,
        most: int | None = None,
        accept: Callable[[Fact, int], bool] = lambda fact, teller: True,
    ) -> None:
        assert 0 <= me.ordinal < ring <= (most or ring), "this broker is one of the ring"
        self.store = Store()
        self._accept = accept
        self._sought = set(range(ring))
        self._most = most or ring
        self._random = random
        self._out: list[Effect] = []
        self._direct: dict[int, Direct] = {}
        self._receipts: dict[int, Receipt] = {}
        self._numbers = 0
        self._tell_at = math.inf
        self._sync_at = now + random.random() * limits.GOSSIP_SYNC_SECONDS
        self._reconnect_at = now
        self._now = now
        self._wake = now
        self.members = Membership(
            me,
            random=random,
            send=self._send,
            publish=self._say,
            known=lambda ordinal: self.store.get(BROKER, ordinal),
            now=now,
        )
        self._take(me.fact(), now, tell=True)

    # --- What goes in -----------------------------------------------------------------------------

    def tick(self, now: float) -> list[Effect]:
        """Time has passed."""
        self._enter(now)
        self.members.tick(now)
        if self._reconnect_at <= now:
            self._reconnect(now)
        if self._sync_at <= now:
            self._sync_at = now + self._sync_seconds() * (0.5 + self._random.random())
            for peer in self._some(1):
                self._sync(peer)
        self._send_direct(now)
        if self._tell_at <= now:
            self._tell(now)
        self._expire_receipts(now)
        return self._leave(now)

    def receive(self, sender: int, message: Message, now: float) -> list[Effect]:
        """A message of another broker; its identity is known from the connection's greeting."""
        self._enter(now)
        news, me = 0, self.members.me
        if isinstance(message, (Ping, Ack, PingRequest, Push, Sync, SyncReply)):
            # What comes in bulk is old to the others: they compare for themselves.
            bulk = isinstance(message, SyncReply) and len(message.facts) > BULK_FACTS
            news = self._learn(sender, message.facts, now, tell=not bulk)
        if isinstance(message, Push):
            if message.number:
                self._out.append(AckWanted(sender, message.number))
        elif isinstance(message, PushAck):
            self._push_acknowledged(sender, message.number, now)
        elif isinstance(message, Sync):
            self._compare(sender, message)
        elif isinstance(message, SyncReply):
            self._compared(sender, message, news)
        else:
            self.members.receive(sender, message, now)
        if isinstance(message, Ping) and self.store.get(BROKER, sender) is None:
            self._sync(sender)  # It tells of itself then; of third ones that is not always taken.
        if self.members.me is not me:
            self._deny_to(sender)
        self._contradict(sender)
        return self._leave(now)

    def unreachable(self, ordinal: int, now: float, *, refused: bool) -> list[Effect]:
        """A connection could not be made; refused: nothing listens there."""
        self._enter(now)
        self.members.unreachable(ordinal, now, refused=refused)
        return self._leave(now)

    def link_lost(self, ordinal: int, now: float) -> list[Effect]:
        """A connection broke."""
        self._enter(now)
        self.members.link_lost(ordinal, now)
        if (direct := self._direct.get(ordinal)) is not None:
            direct.next_at = now + limits.GOSSIP_DIRECT_SECONDS  # What was under way goes again.
        return self._leave(now)

    def publish(self, fact: Fact, now: float, *, receipt: int = 0) -> list[Effect]:
        """Spread a fact of this broker's own. With a receipt, `Delivered` follows."""
        self._enter(now)
        self._take(fact, now, tell=True)
        unseen = self._publish_directly(fact, now)
        assert receipt not in self._receipts, "a receipt is given once"
        if receipt:
            seconds = limits.REGISTRATION_PEERS_SECONDS_MAX
            if not unseen and self.members.up:
                seconds = self.spread_seconds()
            if unseen or self.members.up:
                self._receipts[receipt] = Receipt(unseen, now + seconds, fact)
            else:
                self._out.append(Delivered(receipt, True))
        self._send_direct(now)
        return self._leave(now)

    def acknowledge(self, ordinal: int, number: int, now: float) -> list[Effect]:
        """The workers have what came with that message."""
        self._enter(now)
        self._send(ordinal, PushAck(number=number))
        return self._leave(now)

    def forget(self, kind: str, key: int | str) -> None:
        """Something need not be remembered any more."""
        self.store.forget(kind, key)

    def renew(
        self, now: float, processes: tuple[tuple[int, int, int], ...], log: tuple[int, int]
    ) -> list[Effect]:
        """This broker has other processes than it has told, or has noted another format."""
        self._enter(now)
        me = self.members.me
        incarnation = following(me.incarnation)
        self.members.me = replace(me, processes=processes, log=log, incarnation=incarnation)
        self._say(self.members.me)
        return self._leave(now)

    def depart(self, now: float) -> list[Effect]:
        """This broker stops in an orderly way: nobody needs to suspect it."""
        self._enter(now)
        self.members.me = replace(self.members.me, state=LEFT)
        self._say(self.members.me)
        fact = self.members.me.fact()
        for peer in self._some(limits.GOSSIP_DIRECT_BROKERS):
            self._out.append(Send(peer, Push(facts=(fact.packed,))))
        return self._leave(now)

    def deadline(self) -> float:
        """When `tick` is to be called next."""
        times = [self.members.deadline(), self._sync_at, self._tell_at, self._reconnect_at]
        times += [d.next_at for d in self._direct.values() if d.waiting or d.under_way]
        times += [receipt.deadline for receipt in self._receipts.values()]
        return min(times)

    # --- Coming and going ---------------------------------------------------------------------

    def _enter(self, now: float) -> None:
        if now > self._wake + limits.GOSSIP_LAG_SECONDS:
            lag = now - self._wake
            self.members.lag(lag)
            for receipt in self._receipts.values():
                receipt.deadline += lag
        self._wake = now
        self._now = now

    def _leave(self, now: float) -> list[Effect]:
        if self.store.rumours and self._tell_at == math.inf:
            self._tell_at = now + limits.GOSSIP_TELL_SECONDS * self._random.random()
        self._wake = max(now, self.deadline())
        self._check()
        effects, self._out = self._out, []
        return effects

    def _check(self) -> None:
        self.members.check()
        self.store.check()
        me = self.members.me.ordinal
        assert me not in self._direct and me in self._sought, "nobody tells itself"
        assert self.store.get(BROKER, me) is not None, "it knows itself"
        assert len(self._sought) <= self._most, "no ordinal is beyond the ring"
        assert 0 not in self._receipts, "0 is no receipt"
        assert not self.store.rumours or self._tell_at < math.inf, "what is news will be told"
        for direct in self._direct.values():
            direct.check(self._numbers)

    def _send(self, ordinal: int, message: Message) -> None:
        """Send a probe or an answer to one, with news on its back."""
        if isinstance(message, (Ping, Ack, PingRequest)):
            facts = self.store.choose(limits.GOSSIP_PIGGYBACK_BYTES_MAX, self._size())
            said = self.store.get(BROKER, ordinal)
            if said is not None and said.version[1] and said not in facts:
                facts.append(said)  # What is said of it, so that it can deny.
            message = replace(message, facts=tuple(fact.packed for fact in facts))
        self._out.append(Send(ordinal, message))

    def _size(self) -> int:
        return len(self.members.up) + 1

    def _some(self, count: int) -> list[int]:
        others = list(self.members.up)
        return self._random.sample(others, min(count, len(others)))

    # --- Facts --------------------------------------------------------------------------------

    def _say(self, info: BrokerInfo) -> None:
        fact = info.fact()
        self._take(fact, self._now, tell=True)
        self._publish_directly(fact, self._now)

    def _take(self, fact: Fact, now: float, *, tell: bool, news: bool = False) -> bool:
        before = self.store.get(fact.kind, fact.key)
        if not self.store.merge(fact, tell=tell):
            return False
        self._out.append(Changed(fact, before, news))
        if fact.kind == BROKER:
            self._sought.add(int(fact.key))
            past = None if before is None else BrokerInfo.of(before)
            self.members.changed(BrokerInfo.of(fact), past, now)
        return True

    def _learn(self, sender: int, packed: Iterable[bytes], now: float, *, tell: bool) -> int:
        """Take what is new and worth keeping; how many that were."""
        news, told = 0, set[tuple[str, int | str]]()
        for item in packed:
            fact = Fact.unpack(item)
            if fact.is_dear:
                if (fact.kind, fact.key) in told:
                    raise ProtocolError(f"a message tells of {fact.kind} {fact.key} twice")
                told.add((fact.kind, fact.key))
            if fact.kind == BROKER and int(fact.key) >= self._most:
                raise ProtocolError(f"broker {fact.key} of a ring of at most {self._most}")
            known = self.store.get(fact.kind, fact.key)
            if known is not None and known.packed == fact.packed:
                continue
            if known is not None and fact.kind == BROKER and known.version == fact.version:
                self.members.also_suspected(fact)
            if self._accept(fact, sender) and self._take(fact, now, tell=tell, news=True):
                news += 1
                self._ask_the_gone(sender, fact)
        return news

    def _ask_the_gone(self, sender: int, fact: Fact) -> None:
        """Who is gone in another's words is told so: if it lives it denies, at once.

        Else two that a third one has told of each other would not speak until they look for who is
        missing, some seconds later. Not in a large cluster: all would call the one that has died.
        """
        if (
            fact.kind != BROKER
            or BrokerInfo.of(fact).up
            or fact.key in (sender, self.members.me.ordinal)
        ):
            return
        if self._size() <= limits.GOSSIP_DIRECT_BROKERS:
            self._out.append(Send(int(fact.key), Push(facts=(fact.packed,))))

    def _deny_to(self, sender: int) -> None:
        """Who has just told what this broker denies hears it first, with what is said of itself:
        it may be gone in the eyes of this one, and is not among those that are told."""
        said = self.store.get(BROKER, sender)
        facts = [self.members.me.fact().packed]
        if said is not None and said.version[1]:
            facts.append(said.packed)
        self._out.append(Send(sender, Push(facts=tuple(facts))))

    def _contradict(self, sender: int) -> None:
        """Who is heard of though it is said to be gone is told so, and denies."""
        said = self.store.get(BROKER, sender)
        if said is None or sender in self.members.up or sender == self.members.me.ordinal:
            return
        if not any(isinstance(e, Send) and e.ordinal == sender for e in self._out):
            self._out.append(Send(sender, Push(facts=(said.packed,))))

    # --- Rumours --------------------------------------------------------------------------------

    def _tell(self, now: float) -> None:
        self._tell_at = math.inf
        for peer in self._some(limits.GOSSIP_TELL_FANOUT):
            facts = self.store.choose(limits.GOSSIP_PUSH_BYTES_MAX, self._size())
            if not facts:
                return
            self._out.append(Send(peer, Push(facts=tuple(fact.packed for fact in facts))))
        if self.store.rumours:
            self._tell_at = now + limits.GOSSIP_TELL_SECONDS

    def spread_seconds(self) -> float:
        """About how long a rumour takes to reach all: its rounds, with some to spare."""
        rounds = math.log(self._size(), limits.GOSSIP_TELL_FANOUT + 1) + 4
        return rounds * limits.GOSSIP_TELL_SECONDS

    # --- Direct news, in a small cluster ----------------------------------------------------------

    def _publish_directly(self, fact: Fact, now: float) -> set[int]:
        if self._size() > limits.GOSSIP_DIRECT_BROKERS:
            return set()
        for peer in self.members.up:
            self._direct.setdefault(peer, Direct()).waiting[fact.kind, fact.key] = fact
        return set(self.members.up)

    def _send_direct(self, now: float) -> None:
        for peer, direct in list(self._direct.items()):
            if peer not in self.members.up:
                del self._direct[peer]  # It will compare when it is back.
                self._excuse(peer)
                continue
            if direct.next_at > now or not (direct.waiting or direct.under_way):
                continue
            if not direct.under_way:
                left = limits.GOSSIP_PUSH_BYTES_MAX
                for name, fact in list(direct.waiting.items()):
                    left -= len(fact.packed) + 5
                    if left < 0:
                        break
                    direct.under_way[name] = direct.waiting.pop(name)
                assert direct.under_way, "one fact always fits"
                self._numbers += 1
                direct.number = self._numbers
            packed = tuple(fact.packed for fact in direct.under_way.values())
            self._out.append(Send(peer, Push(number=direct.number, facts=packed)))
            direct.next_at = now + limits.GOSSIP_DIRECT_RETRY_SECONDS

    def _push_acknowledged(self, peer: int, number: int, now: float) -> None:
        direct = self._direct.get(peer)
        if direct is None or direct.number != number or not direct.under_way:
            return
        done, direct.under_way = direct.under_way, {}
        direct.next_at = now + limits.GOSSIP_DIRECT_SECONDS
        for receipt, item in list(self._receipts.items()):
            fact = done.get((item.fact.kind, item.fact.key))
            if fact is not None and not newer(item.fact, fact):
                item.unseen.discard(peer)
                self._check_receipt(receipt, item)

    def _excuse(self, peer: int) -> None:
        for receipt, item in list(self._receipts.items()):
            if peer in item.unseen:
                item.unseen.discard(peer)
                self._check_receipt(receipt, item)

    def _check_receipt(self, receipt: int, item: Receipt) -> None:
        if not item.unseen:
            del self._receipts[receipt]
            self._out.append(Delivered(receipt, True))

    def _expire_receipts(self, now: float) -> None:
        for receipt, item in list(self._receipts.items()):
            if item.deadline <= now:
                del self._receipts[receipt]
                self._out.append(Delivered(receipt, False, tuple(sorted(item.unseen))))

    # --- Anti-entropy -----------------------------------------------------------------------------

    def _sync_seconds(self) -> float:
        return limits.GOSSIP_SYNC_SECONDS * max(1.0, math.log2(self._size() / 16))

    def _sync(self, peer: int) -> None:
        mine = self.members.me.fact()
        self._out.append(Send(peer, Sync(digests=self.store.digests(), facts=(mine.packed,))))

    def _reconnect(self, now: float) -> None:
        """Try brokers that are down or were never heard of: one, or some when quite alone."""
        assert self.members.me.ordinal in self._sought, "it was the first that was heard of"
        alone = not self.members.up
        away = sorted(self._sought.difference(self.members.up, (self.members.me.ordinal,)))
        seconds = limits.GOSSIP_RECONNECT_SECONDS / (4 if alone and away else 1)
        self._reconnect_at = now + seconds * (0.75 + 0.5 * self._random.random())
        for peer in self._random.sample(away, min(3 if alone else 1, len(away))):
            self._sync(peer)

    def _compare(self, sender: int, theirs: Sync) -> None:
        differing = sorted(self.store.differing(theirs.digests))
        if not differing:
            return
        by_bucket: dict[int, list[bytes]] = {bucket: [] for bucket in differing}
        for fact in self.store.in_buckets(set(differing)):
            by_bucket[fact.bucket].append(fact.packed)
        self._random.shuffle(differing)
        left = limits.GOSSIP_SYNC_BYTES_MAX
        facts: list[bytes] = []
        whole = []
        for bucket in differing:
            size = sum(len(packed) + 5 for packed in by_bucket[bucket])
            if size > left and facts:
                break
            if size > left:  # A bucket of its own: some of it, others another time.
                self._shuffled_part(by_bucket[bucket], facts)
                break
            facts += by_bucket[bucket]
            whole.append(bucket)
            left -= size
        more = len(whole) < len(differing)
        reply = SyncReply(whole=tuple(whole), more=more, facts=tuple(facts))
        self._out.append(Send(sender, reply))

    def _shuffled_part(self, packed: list[bytes], facts: list[bytes]) -> None:
        assert packed and not facts, "nothing else goes with it"
        order = list(range(len(packed)))
        self._random.shuffle(order)
        left = limits.GOSSIP_SYNC_BYTES_MAX
        for place in order:
            left -= len(packed[place]) + 5
            if left < 0:
                return
            facts.append(packed[place])

    def _compared(self, sender: int, reply: SyncReply, taken: int) -> None:
        """Its facts are taken already; what it lacks goes back.

        There may be more, and it is asked for at once as long as some of it is news: two that
        cannot agree (one has forgotten on purpose what the other still knows) do not go on so.
        """
        given = set(reply.facts)
        buckets = {bucket for bucket in reply.whole if bucket < BUCKETS}
        news = [f.packed for f in self.store.in_buckets(buckets) if f.packed not in given]
        while news:
            part: list[bytes] = []
            left = limits.GOSSIP_SYNC_BYTES_MAX
            while news and left > 0:
                left -= len(news[-1]) + 5
                part.append(news.pop())
            self._out.append(Send(sender, Push(facts=tuple(part))))
        if reply.more and taken:
            self._sync(sender)
