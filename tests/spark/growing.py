"""A ring that grows and shrinks in a process of its own: `python growing.py DIRECTORY KILLS`.

A fork that runs Python, as those that start brokers do, shuts py4j's connections of the process it
is forked from: so Spark's is another one. It says its endpoints, and for each line that it is given
makes one step and says which; after the last, that those who left are drained and have ended, it
says `ended`, and runs until its input ends. KILLS: `kills`, in each step a broker is killed and
comes back.
"""

import json
import random
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from joining import JoinedCluster, barco, three

SECONDS = 240
SIZES = (4, 6, 3)


def say(word: object) -> None:
    print(json.dumps(word), flush=True)


def command(*arguments: object) -> None:
    """One that must not fail."""
    done = barco(*arguments)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"


def step(cluster: JoinedCluster, brokers: int, kills: random.Random | None) -> None:
    """Until so many lead, whoever is killed meanwhile."""
    net, _, last = cluster.hosts[0].rpartition(".")
    joined = range(len(cluster.hosts), brokers)
    for ordinal in joined:
        cluster.join(f"{net}.{int(last) + ordinal}")
    cluster.wait_ready(joined)
    everywhere = ",".join(cluster.endpoints)
    command("scale", "--to", brokers, "--no-wait", "--endpoint", everywhere)
    if kills is not None:
        time.sleep(kills.random() * 2)
        victim = kills.randrange(len(cluster.hosts))
        cluster.kill(victim)
        time.sleep(kills.random())
        cluster.start(victim)
        say(f"broker {victim} was killed")
    command("scale", "--to", brokers, "--timeout", SECONDS - 10, "--endpoint", everywhere)
    say(f"{brokers} brokers")


def shed(cluster: JoinedCluster, brokers: int) -> None:
    """Those that lead nothing are drained, and stopped for good."""
    leaving = range(brokers, len(cluster.hosts))
    for ordinal in leaving:
        command("drain", ordinal, "--timeout", SECONDS - 10, "--endpoint", cluster.endpoints[0])
    cluster.stop(leaving)
    cluster.hosts = cluster.hosts[:brokers]
    say(f"{len(leaving)} drained and stopped")


def main(directory: str, how: str) -> None:
    for cluster in three(Path(directory)):
        say(cluster.endpoints)
        kills = random.Random(how) if how == "kills" else None
        steps = [partial(step, cluster, brokers, kills) for brokers in SIZES]
        for each in (*steps, partial(shed, cluster, SIZES[-1])):
            if not sys.stdin.readline():
                return
            each()
        say("ended")
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
