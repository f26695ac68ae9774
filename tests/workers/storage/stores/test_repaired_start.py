"""A start that meets damage in a generation that has ended: it is whole, and gets repaired."""

import builder
import pytest
from replica_files import Loading, make

from barco.model.generation import Gid, Parent
from barco.workers.storage.files.lineage import Lineage

from .test_scrub import Members, a_log


def sealed(shard):
    """A log that has ended; its files, and its tail."""
    log, lineage = a_log(), Lineage.load(shard)
    lineage.opened(2, builder.SESSION, [(1, 0)])
    paths = log.write(shard)
    lineage.sealed(2, len(log.groups), len(paths) - 1, len(log.segments[-1]))
    return log, paths


@pytest.mark.parametrize("damage", ["a bit", "a file", "all files"])
def test_it_is_repaired_and_not_fetched_for_ever(shard, go, damage):
    log, paths = sealed(shard)
    errors = []

    async def test(bulk):
        whole = [bytes(segment) for segment in log.segments]
        if damage == "a bit":
            data = bytearray(paths[-1].read_bytes())
            data[4096 + 300] ^= 1
            paths[-1].write_bytes(data)
        for path in {"a bit": [], "a file": paths[1:2], "all files": paths}[damage]:
            path.unlink()
        store, core = make(shard, bulk, errors), Loading()
        found = (await store.recover(core))[2]
        assert found.tail == len(log.groups) and found.sealed and not found.suspect and errors
        store.repair_from(Members(log))
        await store.restore_state(
            [Parent(Gid(builder.TOKEN, 2), len(log.groups))]
        )  # Whoever is to lead waits for it.
        assert core.groups == len([row for row in log.groups if row[0] == len(paths) - 1]) - 1
        for key in store.scrub.keys_at(str(paths[0].parent)):
            assert await store.scrub.suspect(key)
        for path, data in zip(paths, whole, strict=True):
            assert path.read_bytes()[: len(data)] == data
        await store.close()

    go(test)


def test_only_the_mark_says_that_groups_have_expired(shard, go):
    log, paths = sealed(shard)

    async def test(bulk):
        paths[0].unlink()
        store = make(shard, bulk, [])
        await store.recover(Loading())
        assert await store.first_group(2, len(log.groups)) == (1, 0)
        store.lineage.begins(2, 1, 8, 77)
        assert await store.first_group(2, len(log.groups)) == (8, 77)
        store.lineage.expired(2)
        assert await store.first_group(2, len(log.groups)) == (len(log.groups) + 1, 0)
        await store.close()

    go(test)
