"""Whose the groups are that have positions here: who began one has it until it is forgotten."""

from collections import Counter

from barco.errors import QuotaUsedUpError, RequestError
from barco.model.access import OWNED_BY


def user_of(consumer_id: str) -> str:
    """Whose a consumer is, see `User.own`; empty: nobody had to show who asks."""
    user, owned, _ = consumer_id.partition(OWNED_BY)
    return user if owned else ""


class GroupOwners:
    """Of the groups with a position in one worker. Each of its positions says whose it is."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._positions: Counter[str] = Counter()
        self._groups: Counter[str] = Counter()
        """By user."""

    def of(self, group: str) -> str:
        """The user who began it; empty: nobody had to show who asks, or there is no such group."""
        return self._owners.get(group, "")

    def check(self, group: str, user: str, most: int, *, first: bool = True) -> None:
        """QuotaUsedUpError: the user may begin no other one. most: 0 is without end. first: slice 0
        gets a position, by which the group is counted; RequestError: it has to, and does not."""
        if not most or group in self._owners:
            return
        if not first:
            raise RequestError(
                "This user's groups are counted where slice 0 is led: a new one begins with a "
                "registration, or with positions that have slice 0 among them."
            )
        if self._groups[user] >= most:
            raise QuotaUsedUpError(
                f"{user} has {self._groups[user]} groups, and a quota of {most}: have one "
                "forgotten (barco groups delete), or the quota raised (barco users quota)."
            )

    def add(self, group: str, user: str) -> None:
        """One more position of the group, which this user has begun if there is no other one."""
        self._positions[group] += 1
        if group not in self._owners:
            self._owners[group] = user
            self._groups[user] += 1

    def remove(self, group: str) -> None:
        """One less. With the last one the group is gone."""
        assert self._positions[group] > 0, "each position was added"
        self._positions[group] -= 1
        if not self._positions[group]:
            del self._positions[group]
            self._groups[self._owners.pop(group)] -= 1

    def clear(self) -> None:
        """There are none."""
        for table in (self._owners, self._positions, self._groups):
            table.clear()
