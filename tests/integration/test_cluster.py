"""Three brokers on this machine: any of them takes anything, and any of them may die."""

import http.client
import itertools
import json
import os
import secrets
import shutil
import sys
import time
from functools import partial

import pytest
from numbered import Load, check_nothing_lost
from ringed import (
    PATIENCE_S,
    RING,
    all_ready,
    ask,
    described,
    key_in,
    leaders,
    load_script,
    request,
    run,
    stored,
    until,
)
from schema import wrong

import barco
from barco import _native
from barco import config as settings
from barco.cli.commands.format import format_for
from barco.client.wire.codec import token_of
from barco.errors import BarcoError
from barco.limits import LEADER_WAIT_SECONDS
from barco.types import Token
from barco.workers.http.shapes.status import STATUS
from barco.workers.http.shapes.topology import TOPOLOGY


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three brokers on addresses that nobody else has, on the usual ports."""
    script = load_script()
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{number + 1}" for number in range(3))
    root = tmp_path_factory.mktemp("cluster")
    made = script.LocalCluster(root, hosts=hosts, tied=True)
    made.write()
    for ordinal in range(2):
        made.start(ordinal)
    # What two of three new brokers say; see the first test.
    made.alone = until(lambda: without_a_leader(made), "two brokers say what they wait for")
    time.sleep(1)  # Longer than it takes to say so with all three.
    made.announced = [n for n in range(2) if "broker ready" in made.log(n).read_text()]
    made.start(2)
    made.wait_ready()
    yield made
    made.stop()
    for ordinal in range(3):  # Gigabytes, most of them zeros.
        shutil.rmtree(made.data(ordinal), ignore_errors=True)


def without_a_leader(cluster):
    """The answer of /status when all three replicas of broker 0 wait for a leader."""
    told = cluster.status(0)
    return told if "workers 0, 1, 2" in told.get("reason", "") else None


def test_the_first_start_needs_all_three_and_says_so(cluster):
    """Genesis knows no disks: a blank one can not be told from one that lost everything."""
    assert not wrong(cluster.alone, STATUS)
    assert "all three at a cluster's first start" in cluster.alone["reason"]
    assert not any(shard["leads"] for shard in cluster.alone["shards"])
    assert cluster.alone["status"] == "starting" and not cluster.alone["inSync"]
    assert not cluster.announced, "READY=1 and the ready line mean that all can be written"
    until(lambda: all_ready(cluster), "all of it is ready")


def test_any_broker_takes_any_produce_and_any_replica_is_read(cluster):
    until(lambda: leaders(cluster) == [0, 1, 2], "every owner leads")
    last = {}
    for ordinal in range(3):
        for index in range(3):
            target = f"/v1/topic/any/messages?partitionKey={key_in(index)}"
            answer = stored(cluster, ordinal, target)
            assert answer["token"] == str(RING.token(index))
            assert int(answer["startOffset"]) >= ordinal
            last[index] = int(answer["startOffset"]) + 1  # More than three, where one was unknown.
    slices = until(lambda: described(cluster, 2, "any"), "all slices are told")
    assert len(slices) == 24
    assert {each["token"] for each in slices} == {str(RING.token(index)) for index in range(3)}
    written = [each for each in slices if each["endOffset"] != "0"]
    ends = {each["token"]: int(each["endOffset"]) for each in written}
    assert ends == {str(RING.token(index)): end for index, end in last.items()}
    for each in written:
        assert len(each["replicas"]) == len(set(each["replicaEndpoints"])) == 3
        assert each["endpoint"] == each["replicaEndpoints"][0]
        for endpoint in each["replicaEndpoints"]:
            target = f"/v1/topic/any/slices/{each['token']}/{each['index']}/events?from=earliest"

            def read(endpoint=endpoint, target=target):
                status, _, values = ask(endpoint, "GET", target)
                return status == 200 and values and values[0]

            # A follower may be a moment behind.
            wanted = [1] * int(each["endOffset"])
            got = until(
                lambda read=read, wanted=wanted: (
                    (got := read()) and got["values"] == wanted and got
                ),
                endpoint,
            )
            assert got["token"] == each["token"]
    lines = "\n".join(f'{{"key":"{key_in(n)}","value":2}}' for n in range(3)).encode()
    target, kind = "/v1/topic/any/messages", "application/vnd.barco.events+x-ndjson"
    for part in stored(cluster, 1, target, lines, kind)["slices"]:
        assert int(part["startOffset"]) >= ends[part["token"]], "each behind its key's others"


def test_all_tell_the_same_routes_and_leaders_how_they_are_copied(cluster):
    until(lambda: leaders(cluster) == [0, 1, 2], "every owner leads")

    def told(ordinal, target="/v1/topology?copies"):
        status, _, body = request(cluster, ordinal, "GET", target)
        assert status == 200 and not wrong(body, TOPOLOGY)
        return body

    def agreed():
        found = [told(ordinal) for ordinal in range(3)]
        copies = [route["followers"] for body in found for route in body["routes"]]
        synced = all(each and all(copy["synced"] for copy in each) for each in copies)
        led = all([route["leader"] for route in body["routes"]] == [0, 1, 2] for body in found)
        return found if synced and led and len({body["version"] for body in found}) == 1 else None

    for body in until(agreed, "all copies are in sync, and all brokers tell it"):
        assert [route["first"] for route in body["routes"]] == [0, 8, 16]
        for index, route in enumerate(body["routes"]):
            assert route["token"] == str(RING.token(index))
            assert route["leader"] == index and not route["handed"]
            assert route["members"] == [(index + step) % 3 for step in range(3)]
            assert sorted(each["ordinal"] for each in route["followers"]) == sorted(
                set(range(3)) - {index}
            )
    for target in ("/v1/topology", "/v1/topology?copies=false"):
        assert not any("followers" in route for route in told(0, target)["routes"])
    assert request(cluster, 0, "GET", "/v1/topology?copies=2")[0] == 400


def replication(cluster, ordinal):
    """What a broker says of the shards that it leads: by follower, its state."""
    _, _, body = request(cluster, ordinal, "GET", "/status")
    assert not wrong(body, STATUS)
    led = [shard["replication"] for shard in body["shards"] if shard.get("leads")]
    return [{each["ordinal"]: each["state"] for each in one["followers"]} for one in led]


def behind(cluster):
    """How many groups the followers of all leaders still lack."""
    told = [cluster.status(ordinal).get("shards") for ordinal in range(3)]
    if None in told:
        return -1  # Somebody does not answer.
    shards = [shard for each in told for shard in each]
    followers = [each for shard in shards for each in shard["replication"].get("followers", [])]
    return sum(each["groupsBehind"] for each in followers)


def upgrade_check(cluster, ordinal):
    """(exit code, by area the worst that was found) with the version that is under test."""
    command = [sys.executable, "-P", "-m", "barco", "upgrade-check", "--json"]
    given = ["--config", str(cluster.config(ordinal)), "--endpoint", cluster.endpoints[ordinal]]
    told = run([*command, *given])
    found = json.loads(told.stdout)["findings"]
    return told.returncode, {each["area"]: each for each in found if each["level"] == "fault"}


def test_a_leader_tells_how_its_followers_are(cluster):
    until(lambda: leaders(cluster) == [0, 1, 2], "every owner leads")
    until(lambda: replication(cluster, 0) == [{1: "live", 2: "live"}], "both are there")
    cluster.kill(2)
    until(lambda: {1: "live", 2: "down"} in replication(cluster, 0), "one of them is gone")
    down = "broker 2 does not lead its shard 2; broker 2 is down (shards 0, 1, 2)"
    until(
        lambda: request(cluster, 0, "GET", "/ready?insync")[2].get("reason") == down,
        "the others lead its range, and miss it",
    )
    status, headers, body = request(cluster, 0, "GET", "/ready?insync")
    assert status == 503 and dict(headers)["retry-after"] and not body["inSync"]
    until(lambda: request(cluster, 0, "GET", "/ready")[0] == 200, "two of three are enough")
    told = run([sys.executable, "-P", "-m", "barco", "status", "--endpoint", cluster.endpoints[0]])
    assert told.returncode == 3 and f"degraded: {down}" in told.stdout, told
    until(lambda: (got := upgrade_check(cluster, 0))[0] == 1 and set(got[1]) == {"now"}, "a fault")
    _, _, metrics = request(cluster, 0, "GET", "/metrics")
    assert b"\nbarco_followers_not_live " in metrics
    cluster.start(2)
    cluster.wait_in_sync(2)  # Says all of what follows.
    # The others hear of it a moment later.
    until(lambda: request(cluster, 0, "GET", "/ready?insync")[0] == 200, "broker 0 says so too")
    until(lambda: replication(cluster, 0) == [{1: "live", 2: "live"}], "it caught up")
    until(lambda: leaders(cluster) == [0, 1, 2], "it has its range back")
    until(lambda: upgrade_check(cluster, 1) == (0, {}), "one may be restarted now")


def test_the_client_goes_to_the_owners(cluster):
    with barco.Producer(cluster.endpoints) as producer:
        acks = [
            producer.send("direct", b"%d" % number, key=b"k%d" % number) for number in range(300)
        ]
        keyless = [producer.send("direct", b"none") for _ in range(50)]
        for number, ack in enumerate(acks):
            index, slice_ = RING.locate(Token(token_of(b"k%d" % number)))
            assert (ack.result(60).token, ack.result(60).slice) == (RING.token(index), slice_)
        assert all(ack.result(60) for ack in keyless)
    events = list(barco.read("direct", cluster.endpoints[1]))
    assert len(events) == 350
    for event in events:
        if event.key is not None:
            index, slice_ = RING.locate(Token(token_of(event.key)))
            assert (event.token, event.slice) == (RING.token(index), slice_)


def stored_codecs(cluster, ordinal, topic, key):
    """0 or 1 for the values of each chunk of a key's slice, as this broker has them."""
    index, slice_ = RING.locate(Token(token_of(key.encode())))
    target = f"/v1/topic/{topic}/slices/{RING.token(index)}/{slice_}/events?from=earliest"
    connection = http.client.HTTPConnection(cluster.hosts[ordinal], 9252, timeout=60)
    connection.request("GET", target, headers={"Accept": "application/vnd.barco.chunks"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        return []
    found = [_native.chunk_info(body, row[0]) for row in _native.chunks_scan(body)]
    return [codec for info in found for id_, codec, *_ in info["sections"] if id_ == 5]


def test_timestamps_far_from_now_are_refused_by_whoever_leads(cluster):
    """Whoever is asked: only the leader of a slice is sure of the topic's settings."""
    producers = [barco.Producer(endpoint) for endpoint in cluster.endpoints]
    batch = _native.batch_encode(
        [b"v"] * 60, [b"%d" % n for n in range(60)], {"timestamp": [5] * 60}
    )

    def send(number, stamp):
        producers[number].send("stamped", b"v", key=key_in(1), timestamp_us=stamp).result(60)

    def sent(number):
        target = "/v1/topic/stamped/messages"
        endpoint = f"{cluster.hosts[number]}:9251"
        return ask(endpoint, "POST", target, batch, "application/vnd.barco.batch")[0]

    for number in range(3):
        with pytest.raises(BarcoError, match="this looks like milliseconds"):
            send(number, time.time_ns() // 1_000_000)
        assert sent(number) == 400
    status, _, topic = request(cluster, 2, "PUT", "/v1/topics/stamped", b'{"timestamps": "any"}')
    assert status in (200, 201) and topic["timestamps"] == "any" and topic["events"] == 0
    for number in range(3):
        send(number, 5)
        assert sent(number) == 200
    assert len(list(barco.read("stamped", cluster.endpoints[0]))) == 3 * 61
    for producer in producers:
        producer.close()


def test_a_topics_compression_is_the_same_everywhere(cluster):
    """Whoever packs: the owners, and who leads instead of one that died."""
    status, _, topic = request(cluster, 2, "PUT", "/v1/topics/plain", b'{"compression": "none"}')
    assert status == 201 and topic["compression"] == "none"
    keys = [key_in(index) for index in range(3)]
    body = b'"%s"' % (b"lorem ipsum " * 200)

    def sent(topic, key):
        target = f"/v1/topic/{topic}/messages?partitionKey={key}"
        return request(cluster, 0, "POST", target, body, port=9251)[0] == 200

    def stored(codec, topic, key):
        """The same on all three brokers."""
        return [stored_codecs(cluster, n, topic, key) for n in range(3)] == [[codec] * 2] * 3

    for place in itertools.product(("plain", "usual"), keys):
        assert sent(*place) and sent(*place)
        until(partial(stored, int(place[0] == "usual"), *place), "they have the leader's chunks")
    assert len(list(barco.read("plain", cluster.endpoints[2]))) == 6
    cluster.kill(1)
    try:
        until(lambda: sent("plain", keys[1]), "somebody else leads")
        # A call that was not answered may have been stored as well.
        third = partial(stored_codecs, cluster, 2, "plain", keys[1])
        until(lambda: len(third()) >= 3, "it has what was acknowledged")
        assert set(third()) == {0}
    finally:
        cluster.start(1)
    until(lambda: leaders(cluster) == [0, 1, 2], "it has its range back")


def test_topics_and_groups_are_the_same_everywhere(cluster):
    status, _, _ = request(cluster, 1, "PUT", "/v1/topics/settled", b'{"retentionHours": 5}')
    assert status == 201
    for ordinal in range(3):
        status, _, topic = request(cluster, ordinal, "GET", "/v1/topics/settled")
        assert status == 200 and topic["retentionHours"] == 5 and len(topic["slices"]) in (0, 24)
    with barco.Producer(cluster.endpoints) as producer:
        for number in range(300):
            producer.send("settled", b"%d" % number, key=b"k%d" % number)
    seen = []
    with barco.Consumer("settled", group="g", endpoint=cluster.endpoints, start="earliest") as one:
        deadline = time.monotonic() + PATIENCE_S
        while len(seen) < 300 and time.monotonic() < deadline:
            seen += [int(event.value) for event in one.poll(5)]
        one.commit()
    assert sorted(seen) == list(range(300))
    for ordinal in range(3):
        status, _, group = request(cluster, ordinal, "GET", "/v1/groups/g")
        assert status == 200 and group["lag"] == 0
        assert sum(int(each["offset"]) for each in group["positions"]) == 300


def test_a_change_of_a_topic_waits_for_the_next_leader(cluster):
    """Some shards had it and others not: 504 for whoever asked while a broker died or came back."""

    def put(hours):
        """The status; "late" for one of who has waited as long as it is waited, on a busy machine:
        the next leader took longer than that."""
        body = b'{"retentionHours": %d}' % hours
        began = time.monotonic()
        status = request(cluster, 0, "PUT", "/v1/topics/unsettled", body)[0]
        waited = time.monotonic() - began >= LEADER_WAIT_SECONDS
        return "late" if waited and status in (503, 504) else status

    until(lambda: leaders(cluster) == [0, 1, 2], "each has its range")
    cluster.kill(1)
    try:
        while (made := put(1)) == "late":
            pass
        assert made in (200, 201)
        # Its workers live for a moment longer than it does: one of them may have answered.
        until(lambda: leaders(cluster)[1] in (0, 2), "another one leads its range")
    finally:
        cluster.start(1)
    answers = []

    def back():  # It takes its range meanwhile, which is a change of leaders as well.
        answers.append(put(len(answers) + 2))
        return leaders(cluster) == [0, 1, 2]

    until(back, "it has its range back")
    assert set(answers) <= {200, "late"} and 200 in answers


def test_a_leader_dies_and_comes_back(cluster):
    keys = [key_in(index, 100 * part) for index in range(3) for part in range(3)]
    load = Load(cluster.endpoints, keys, PATIENCE_S)
    load.start()
    try:
        until(lambda: load.rounds >= 5, "the load does not begin")
        for victim in (0, 2):
            until(lambda: None not in leaders(cluster), "a shard without a leader")
            cluster.kill(victim)
            before = load.rounds
            until(lambda before=before: load.rounds >= before + 10, "writes do not go on")
            alive = [o for o in range(3) if o != victim]
            with barco.Admin(cluster.endpoints[alive[0]], timeout_s=60) as admin:
                owners = {shard["ordinal"] for shard in admin.topology()["shards"]}
            assert victim not in owners
            cluster.start(victim)
            cluster.wait_ready()
    finally:
        load.ended.set()
        load.join(PATIENCE_S)
    check_nothing_lost(load, cluster.endpoints)


def test_a_lost_disk_is_replaced(cluster):
    victim = 1
    with barco.Producer(cluster.endpoints) as producer:
        for number in range(100):
            producer.send("kept", b"%d" % number, key=b"k%d" % number)
    cluster.stop([victim])
    shutil.rmtree(cluster.data(victim))
    command = [sys.executable, "-P", "-m", "barco"]
    config = ["--config", str(cluster.config(victim))]
    for name in ("format", "serve"):
        refused = run([*command, name, *config])
        told = refused.stderr.splitlines()[-1]
        assert refused.returncode == 78 and "run barco replace" in told, refused
        assert not (cluster.data(victim) / "broker.json").exists(), "serve does not format it"
    # As serve makes it where nobody answers, which the others then refuse.
    loaded = settings.resolved(settings.load(cluster.config(victim), {}))
    stranger = format_for(loaded, cluster.data(victim))
    refused = run([*command, "serve", *config])
    told = refused.stderr.splitlines()[-1]
    assert refused.returncode == 78 and told.startswith("barco: broker "), refused
    assert "run `barco replace`" in told and stranger.disk_uuid not in told
    done = run([*command, "replace", *config])
    assert done.returncode == 0, done
    cluster.start(victim)
    cluster.wait_ready()
    until(lambda: None not in leaders(cluster), "a shard without a leader")
    cluster.kill(0)  # Now the new disk counts: two of three are enough.
    try:
        values = sorted(int(event.value) for event in barco.read("kept", cluster.endpoints[1:]))
        assert values == list(range(100))
        until(
            lambda: (
                request(
                    cluster, 2, "POST", f"/v1/topic/kept/messages?partitionKey={key_in(0)}", b"1"
                )[0]
                == 200
            ),
            "the new disk does not help to commit",
        )
    finally:
        cluster.start(0)
        cluster.wait_ready()


def recover(cluster, ordinal, *more):
    """`barco recover` in this broker's directory."""
    command = [sys.executable, "-P", "-m", "barco", "recover", str(cluster.data(ordinal))]
    return run([*command, *more, "--json"])


def test_two_lost_disks_are_given_up_only_on_the_operators_word(cluster):
    """The last test of the module: two brokers are new after it."""
    with barco.Producer(cluster.endpoints) as producer:
        for number in range(300):
            producer.send("left", b"%d" % number, key=b"k%d" % number)
    # Two disks answered; what is left alone here has to be on the third one.
    until(lambda: behind(cluster) == 0, "every disk has every event")
    cluster.stop([0, 1, 2])
    disks = []
    for victim in (1, 2):
        shutil.rmtree(cluster.data(victim))
        config = ["--config", str(cluster.config(victim)), "--disk", "ab" * 16, "--json"]
        replaced = run([sys.executable, "-P", "-m", "barco", "replace", *config])
        assert replaced.returncode == 0, replaced
        disks += ["--disk", f"{victim}={json.loads(replaced.stdout)['disk_uuid']}"]
    refused = recover(cluster, 0, "--accept-data-loss")
    assert refused.returncode != 0 and "--disk" in refused.stderr, refused
    refused = recover(cluster, 0, "--accept-data-loss", *disks[:2])
    assert refused.returncode == 0 and "broker 2 has a copy" in refused.stdout, refused
    told = recover(cluster, 0, *disks)
    assert told.returncode == 1, told
    assert not any(json.loads(line)["decided"] for line in told.stdout.splitlines()), told
    done = recover(cluster, 0, "--accept-data-loss", *disks)
    assert done.returncode == 0, done
    assert all(json.loads(line)["decided"] for line in done.stdout.splitlines()), done
    for ordinal in range(3):
        cluster.start(ordinal)
    cluster.wait_ready()
    until(lambda: None not in leaders(cluster), "a shard without a leader")
    values = sorted(int(event.value) for event in barco.read("left", cluster.endpoints))
    assert values == list(range(300))
    for index in range(3):
        target = f"/v1/topic/left/messages?partitionKey={key_in(index)}"
        until(lambda target=target: request(cluster, 1, "POST", target, b"1")[0] == 200, target)
    _, _, body = request(cluster, 0, "GET", "/status")
    assert all(shard["replication"]["uncleanEnds"] == 1 for shard in body["shards"]), body
