"""`barco recover` for a broker of a cluster: the only copy that is left becomes the history."""

import argparse
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from barco.cli.commands.dump import claim_on
from barco.cluster.state.unclean import UncleanEnd, unclean_successor
from barco.errors import DataDirError
from barco.model.generation import Gid, Identity
from barco.model.ranges import HeldRange
from barco.protocol.replication_codec import record_from_map, to_map
from barco.supervisor import datadir
from barco.supervisor.files.lock import open_lock
from barco.types import Ordinal
from barco.workers.storage.files import layout
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.stores.inspect import Record, Wishes, inspect_shard


def disk(text: str) -> Identity:
    """ORDINAL=UUID of an argument, for argparse: ArgumentTypeError for anything else."""
    ordinal, equals, number = text.partition("=")
    try:
        if not equals or not 0 <= int(ordinal) < 2**16 or not datadir.is_uuid(number):
            raise ValueError
        return Identity(Ordinal(int(ordinal)), bytes.fromhex(number))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not ORDINAL=UUID, such as 1=0b1f5ef38cbb4f54b3e25ee8e4e9c0a4"
        ) from None


def run(args: argparse.Namespace, identity: datadir.Identity, ranges: Sequence[HeldRange]) -> int:
    """Look at each shard's copy, and decide alone where that is all there is."""
    me = Identity(Ordinal(identity.ordinal), bytes.fromhex(identity.disk_uuid))
    disks = {each.ordinal: each for each in args.disk}
    _check(args, me, disks)
    lock = open_lock(args.data_dir)
    try:
        undone = 0
        for held in ranges:
            shard, number = layout.range_path(args.data_dir, held.token), held.number
            if not shard.is_dir():
                continue
            claim = claim_on(args.data_dir, identity, held)
            lineage = Lineage.load(shard, claim, token=held.token, repair=args.accept_data_loss)
            tails = _tails(shard, number, bytes.fromhex(identity.cluster_uuid), lineage)
            journal = [record_from_map(record) for record in lineage.journal]
            found = unclean_successor(journal, me, disks, tails, secrets.randbits(64))
            decided = bool(found.records) and args.accept_data_loss
            if decided:
                lineage.add_journal([(_epoch(found), to_map(each)) for each in found.records])
            undone += found.stuck and not decided
            _tell(number, found, decided, args.json)
        return 1 if undone else 0
    finally:
        os.close(lock)


def _check(args: argparse.Namespace, me: Identity, disks: Mapping[int, Identity]) -> None:
    if args.accept_data_loss and not disks:
        raise DataDirError(
            f"{args.data_dir} belongs to a broker of a cluster: what is damaged here is repaired"
            " from the two others when they are up. If both have lost their disks, replace them"
            " (barco replace) and name the new ones with --disk"
        )
    if len(disks) < len(args.disk):
        raise DataDirError("--disk names a broker twice")
    if me.ordinal in disks:
        raise DataDirError(f"--disk names broker {me.ordinal}, whose own directory this is")


def _tails(shard: Path, number: int, cluster_uuid: bytes, lineage: Lineage) -> Callable[[Gid], int]:
    """The last group of each generation that is whole here, by reading what is not sealed."""
    found: list[Record] = []
    inspect_shard(shard, number, cluster_uuid, Wishes(), False, found.append)
    whole = {each["epoch"]: each["tail"] for each in found if each["type"] == "generation"}

    def tail_of(gid: Gid) -> int:
        known = lineage.get(gid.epoch)
        if known is not None and known.expired:
            return known.tail or 0
        return int(whole.get(gid.epoch, 0))

    return tail_of


def _epoch(found: UncleanEnd) -> int:
    assert found.generation is not None
    return found.generation.gid.epoch


def _tell(number: int, found: UncleanEnd, decided: bool, as_json: bool) -> None:
    epoch = found.generation.gid.epoch if found.generation is not None else None
    if as_json:
        told = {"shard": number, "epoch": epoch, "tail": found.tail, "lost_disks": found.lost}
        print(json.dumps(told | {"decided": decided, "refused": found.refusal}))
    elif found.refusal:
        print(f"shard {number}: nothing is given up: {found.refusal}")
    else:
        lost = " and ".join(map(str, found.lost))
        where = f"epoch {epoch} ends with group {found.tail:,}, the last one here"
        if decided:
            print(f"shard {number}: {where}; recorded in lineage.log, the shard will go on")
        else:
            print(
                f"shard {number}: {where}, if you say so with --accept-data-loss: what only brokers"
                f" {lost} had after it is gone"
            )
