"""Brokers that leave: what they hold alone, and whether they may go.

Whoever leads slice 0 looks about once a second at those that are there and not in the target. It
names depots, which is a version of the target; all else is computed from what processes say, so
nothing is lost with whoever looked.
"""

import asyncio
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

from barco.cluster.ring.depots import Draining, EndedLog, draining
from barco.cluster.ring.target import Target
from barco.errors import BarcoError
from barco.model.generation import Gid
from barco.model.ranges import peer_of
from barco.model.replicas import Process
from barco.types import Ordinal
from barco.workers.operations.leaving.ended import HeldCopy, ask_ended, logs_of
from barco.workers.operations.origins import Args
from barco.workers.operations.service import ShardService
from barco.workers.seams import SiblingsLike

LOOK_SECONDS, REST_SECONDS = 1.0, 10.0
"""Between two looks: while something is left, and while nothing is."""

ASKED_MAX = 16
"""Processes that are asked at a time: an operator waits, and each answer may be long."""

SHOWN_MAX = 8
"""Of generations, in words."""

Logs = list[tuple[int, EndedLog]]
"""With the first slice of the range of each."""


class Drains:
    """The looks of one process, which count while it leads slice 0."""

    def __init__(self, service: ShardService, siblings: SiblingsLike) -> None:
        self._desk, self._ranges = service.target, service.ranges
        self._neighbours, self._siblings = service.neighbours, siblings
        self._me = int(service.options.process[0])
        self._desk.copies = self.copies
        service.extend({"drains": self._drains})

    async def run(self) -> None:
        """For as long as the process lives."""
        while True:
            pause = LOOK_SECONDS
            with suppress(BarcoError):  # Somebody else leads, or is about to.
                if self._desk.leads and all(each["drained"] for each in await self.look()):
                    pause = REST_SECONDS
            await asyncio.sleep(pause)

    async def look(self) -> list[dict[str, Any]]:
        """Names depots that are lacking; what is left for each broker that leaves."""
        found, named = await self._look(self._desk.kept())
        if named:
            await self._desk.name_depots(named)
        return found

    async def _drains(self, args: Args) -> dict[str, Any]:
        """{"without": ordinals}: as if these left as well; nothing is changed then."""
        target = self._desk.kept()
        without = {int(each) for each in args.get("without", ())}
        if without:
            stays = tuple(each for each in target.brokers if each.ordinal not in without)
            target = Target(target.version, target.cut, stays, target.depots)
        found, _ = await self._look(target)
        return {"version": target.version, "brokers": found}

    async def copies(self, leaving: Collection[int]) -> dict[Gid, Collection[int]]:
        """Of each generation that has ended: who in reach has all of it, for brokers that are asked
        to leave."""
        logs, _ = await self._logs(self._tokens(leaving))
        return {log.gid: log.holders for _, log in logs}

    # --- One look ---------------------------------------------------------------------------------

    def _up(self) -> set[int]:
        heard = self._neighbours.brokers.values()
        return {each.ordinal for each in heard if each.up} | {self._me}

    async def _look(
        self, target: Target
    ) -> tuple[list[dict[str, Any]], tuple[tuple[int, int], ...]]:
        staying = target.workers.keys()
        leaving = [each for each in self._neighbours.ordinals if each not in staying]
        if not leaving:
            return [], ()
        logs, silent = await self._logs(self._tokens(leaving))
        up, table = self._up(), self._desk.routes()
        wanted = target.wanted(target.joined(table, up & set(staying)))
        found: list[dict[str, Any]] = []
        named: dict[tuple[int, int], None] = {}
        for ordinal in leaving:
            own = [each for each in logs if ordinal in each[1].members | each[1].holders]
            left = draining(own, staying, up, (*target.depots, *named), wanted)
            if not silent:
                named |= dict.fromkeys(left.named)
            open_ = sum(ordinal in route.members for route in table) if table.is_covering else None
            found.append(_report(ordinal, ordinal in up, left, len(own), open_, silent))
        return found, tuple(named)

    def _tokens(self, leaving: Iterable[int]) -> set[int]:
        """Of all ranges that these have told of a process for."""
        return {token for ordinal in leaving for token in self._ranges.tokens_of(Ordinal(ordinal))}

    async def _logs(self, tokens: Iterable[int]) -> tuple[Logs, list[int]]:
        """What is known of generations of these ranges that have ended, and who is up and did not
        answer."""
        found: Logs = []
        silent: set[int] = set()
        up, room = self._up(), asyncio.Semaphore(ASKED_MAX)

        async def ask(token: int, process: Process) -> list[HeldCopy] | None:
            async with room:
                try:
                    return await ask_ended(self._siblings, peer_of(process), token)
                except BarcoError:
                    return None

        of = {token: self._ranges.processes_of_token(token) for token in sorted(tokens)}
        asked = [(token, process) for token, processes in of.items() for process in processes]
        answers = dict(
            zip(asked, await asyncio.gather(*(ask(*each) for each in asked)), strict=True)
        )
        for token, processes in of.items():
            said: dict[int, list[HeldCopy]] = {}
            for process in processes:
                told = answers[token, process]
                if told is None:
                    silent |= {process[0]} & up
                else:
                    said[process[0]] = told
            first = self._ranges.slice_at(token)
            found += [(first, log) for log in logs_of(token, said).values()]
        return found, sorted(silent)


def _report(
    ordinal: int,
    is_up: bool,
    left: Draining,
    generations: int,
    open_ranges: int | None,
    silent: list[int],
) -> dict[str, Any]:
    """For documents."""
    waits = []
    if open_ranges is None:
        waits.append("not every range of the ring has been heard of")
    elif open_ranges:
        waits.append(f"it is a member of {open_ranges} ranges of the ring")
    if silent:
        waits.append(f"brokers {', '.join(map(str, silent))} do not answer yet")
    elif left.helpless:
        shown = ", ".join(f"{gid.token}/{gid.epoch}" for gid in list(left.helpless)[:SHOWN_MAX])
        more = (
            f" and {len(left.helpless) - SHOWN_MAX} more" if len(left.helpless) > SHOWN_MAX else ""
        )
        waits.append(
            f"of generations {shown}{more} fewer than two copies are in reach, or nobody who is up"
            " can take one: start the brokers that are down"
        )
    return {
        "ordinal": ordinal,
        "up": is_up,
        "drained": left.done and not waits,
        "generations": generations,
        "copies": sum(len(each) for each in left.copies.values()),
        "bytesLeft": left.bytes_left,
        "bytesAll": left.bytes_all,
        "waits": waits,
    }
