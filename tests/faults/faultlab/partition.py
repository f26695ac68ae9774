"""Cuts between the brokers of one machine: packets are dropped, so that there is silence."""

import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

Cut = tuple[int, int]
"""What the first sends to the second does not arrive."""


def _both(a: int, b: int) -> list[Cut]:
    return [(a, b), (b, a)]


def shapes() -> dict[str, list[Cut]]:
    """One alone, one that is deaf, one that is mute, every pair, and each way of a pair: 18."""
    found: dict[str, list[Cut]] = {}
    for one in range(3):
        others = [other for other in range(3) if other != one]
        found[f"{one} alone"] = [cut for other in others for cut in _both(one, other)]
        found[f"{one} deaf"] = [(other, one) for other in others]
        found[f"{one} mute"] = [(one, other) for other in others]
        found[f"{others[0]} and {others[1]}"] = _both(*others)
        for other in others:
            found[f"{one} to {other}"] = [(one, other)]
    return found


def any_shape(rng: random.Random, count: int) -> tuple[str, list[Cut]]:
    """Of a ring of so many: one alone, deaf or mute; a pair; one way of a pair; or two halves."""
    one, other = rng.sample(range(count), 2)
    others = [each for each in range(count) if each != one]
    half = sorted(rng.sample(range(count), count // 2))
    rest = [each for each in range(count) if each not in half]
    found = {
        f"{one} alone": [cut for each in others for cut in _both(one, each)],
        f"{one} deaf": [(each, one) for each in others],
        f"{one} mute": [(one, each) for each in others],
        f"{one} and {other}": _both(one, other),
        f"{one} to {other}": [(one, other)],
        f"{half} and {rest}": [cut for a in half for b in rest for cut in _both(a, b)],
    }
    name = rng.choice(list(found))
    return name, found[name]


def why_not() -> str:
    """Why this machine cannot do it; empty when it can."""
    if os.geteuid() != 0:
        return "partitions need root: run the tests as root"
    if shutil.which("nft") is None:
        return "nft is not installed (apt-get install nftables)"
    try:
        with cut(["127.251.251.1", "127.251.251.2"], [(0, 1)]):
            return ""
    except subprocess.CalledProcessError as error:
        return f"nft is refused here: {error.stderr.strip()[:200]}"


@contextmanager
def cut(hosts: Sequence[str], cuts: Sequence[Cut]) -> Iterator[None]:
    """While it lasts, these packets are dropped. A table of its own; addresses nobody else has."""
    name = f"barco_faults_{os.getpid()}_{hosts[0].replace('.', '_')}"
    rules = "".join(f"ip saddr {hosts[a]} ip daddr {hosts[b]} drop\n" for a, b in cuts)
    table = f"table ip {name} {{ chain cut {{ type filter hook input priority 0;\n{rules}}}\n}}\n"
    _nft(table)
    try:
        yield
    finally:
        _nft(f"delete table ip {name}\n")


def _nft(text: str) -> None:
    command = ["nft", "-f", "-"]
    subprocess.run(command, input=text, capture_output=True, check=True, text=True)
