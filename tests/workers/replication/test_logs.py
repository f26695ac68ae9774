"""Where the groups of peers go: here, those that belong nowhere any more."""

import asyncio
from types import SimpleNamespace

from barco.model.generation import Gid, GroupHead
from barco.workers.replication.logs import Logs


class Store:
    """Epoch 5 has ended, with all of its history here; epoch 6 has only just begun to come."""

    def __init__(self):
        self.lineage = {5: SimpleNamespace(sealed=True), 6: SimpleNamespace(sealed=False)}
        self.copied = []

    def copy(self, epoch, session):
        return self

    async def append(self, groups):
        self.copied += groups
        return SimpleNamespace(tail=len(groups), header_crc=7)


def test_what_a_deposed_leader_sent_too_much_is_dropped():
    """It does not follow on the log's end, and a log that fails costs a minute of leading."""
    store, stable, failed = Store(), [], []

    async def test():
        logs = Logs(
            SimpleNamespace(),
            store,
            stable=lambda *what: stable.append(what),
            failed=lambda *what: failed.append(what),
            fatal=failed.append,
            tail_of=lambda gid: 983,
            session_of=lambda gid: 1,
        )
        for epoch, gseq in ((5, 984), (6, 1)):
            logs.append(Gid(0, epoch), GroupHead(gseq, 0, 7, 4), b"data")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert store.copied == [b"data"] and logs.pending_bytes == 0
        await logs.close()

    asyncio.run(test())
    assert stable == [(Gid(0, 6), 1, 7)] and not failed
