"""A broker's own news on the way to the others of a small cluster, and who has them."""

from msgspec import Struct, field

from barco.cluster.gossip.facts import Fact


class Direct(Struct):
    """News of this broker's own on the way to one other broker, one message at a time."""

    waiting: dict[tuple[str, int | str], Fact] = field(default_factory=dict)
    under_way: dict[tuple[str, int | str], Fact] = field(default_factory=dict)
    number: int = 0
    """Of the message under way; what waits goes with a later one."""
    next_at: float = 0.0

    def check(self, numbers: int) -> None:
        """What holds between two messages; `numbers`: of so many messages."""
        assert 0 <= self.number <= numbers, "numbers are given once"
        assert not self.under_way or self.number > 0, "what is under way has one"


class Receipt(Struct):
    """Who has not acknowledged a publication: (ordinal, number of the message to wait for)."""

    unseen: set[int]
    deadline: float
    fact: Fact
