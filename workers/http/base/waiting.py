"""Waiting for a range's next leader, as a change does that can be made again."""

import asyncio

from barco import limits

_PAUSE_S = 0.1
"""Before another look whether somebody leads: each look asks every process."""


class LeaderWait:
    """One change's patience, which begins now. The leader is another process: it tells nobody."""

    def __init__(self) -> None:
        self._until = asyncio.get_running_loop().time() + limits.LEADER_WAIT_SECONDS

    async def again(self) -> bool:
        """True after a pause, for another try; False, at once, when the time is up."""
        if asyncio.get_running_loop().time() >= self._until:
            return False
        await asyncio.sleep(_PAUSE_S)
        return True
