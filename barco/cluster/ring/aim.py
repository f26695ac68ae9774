"""The target as one broker knows it: what gossip tells, and what its keeper has said. Pure.

Gossip is late, or a lie, and of a lie of version 2^63 - 1 nothing is newer. So it only says that
there is something to ask: what counts is the word of who keeps the target, asked by a process of
this broker. And what gossip says a fact's number is, is not the target's version: whoever keeps it
answers each lie with the next number.
"""

from barco.cluster.ring.target import Target


class Aim:
    """`target` is what this broker acts on; None: nobody who keeps it has been asked yet."""

    def __init__(self) -> None:
        self.target: Target | None = None
        self.heard: Target | None = None
        """As gossip tells it."""
        self.kept: Target | None = None
        """The last that a process of this broker has said as its keeper."""

    def said(self, target: Target) -> bool:
        """Who keeps it has said it; true if that is news."""
        news = target != self.target
        self.target = target
        return news

    @property
    def is_asked_for(self) -> bool:
        """Whether gossip tells another one than the keeper has said."""
        return self.heard is not None and self.heard != self.target

    def denied(self, leads: bool) -> Target | None:
        """What others have to be told instead of what gossip tells. leads: whether a process of
        this broker leads slice 0 now."""
        told = self.kept if leads and self.heard not in (None, self.kept) else None
        assert told is None or told != self.heard, "nobody says again what is told"
        return told
