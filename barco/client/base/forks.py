"""Whether this process was forked off the one that made a client.

A client's thread stays with its maker, and so do its sockets, in which two would speak at once; a
lock of it may be held for ever here. So nothing of it may be used in the child, and it says so.
"""

import os

from barco.client.base.errors import ForkedError

count = 0
"""How often this process and those before it were forked off another."""


def _forked() -> None:
    global count
    count += 1


os.register_at_fork(after_in_child=_forked)


def check(born: int) -> None:
    """ForkedError if a client that was made at this count has another process now."""
    if born != count:
        raise ForkedError(
            "the client was made before this process was forked (multiprocessing, a server's"
            " workers): make one in each process, after the fork"
        )
