"""Options of a read: names and meanings of Spark's Kafka source."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="no pyspark: pip install 'barco[spark]'")

from barco.client.wire.access import Access
from barco.spark.base.options import OptionError, Places, ReadOptions, duration_s
from barco.spark.write.commit import WriteOptions


def parse(*, stream: bool = False, **given: str) -> ReadOptions:
    return ReadOptions.parse({"subscribe": "t"} | given, stream=stream)


def test_defaults() -> None:
    options = parse()
    assert options.topics == ("t",) and options.access.endpoints == ("127.0.0.1:9250",)
    assert options.starting.of("t", 0, "?") == "earliest"
    assert options.ending.of("t", 0, "?") == "latest"
    assert parse(stream=True).starting.of("t", 0, "?") == "latest"
    assert options.fail_on_data_loss


@pytest.mark.parametrize("name", ("endpoints", "bootstrap.servers", "kafka.bootstrap.servers"))
def test_endpoints_by_any_name(name: str) -> None:
    options = ReadOptions.parse({"subscribe": "t", name: "a:1, b:2"}, stream=False)
    assert options.access.endpoints == ("a:1", "b:2")


def test_load_with_a_name_is_subscribe() -> None:
    assert ReadOptions.parse({"path": "a,b"}, stream=False).topics == ("a", "b")


def test_offsets_by_partition() -> None:
    options = parse(startingOffsets='{"t":{"0":23,"1":-2,"2":-1}}')
    places = [options.starting.of("t", n, "earliest") for n in range(4)]
    assert places == [23, "earliest", "latest", "earliest"]


def test_timestamps_come_first_then_those_by_partition() -> None:
    by_time = '{"t":{"1":7}}'
    both = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": by_time}
    assert parse(**both).starting.of("t", 1, "earliest") == "timestamp:7000"
    assert parse(**both, startingTimestamp="5").starting == Places("timestamp:5000", given=True)
    assert parse(**both).starting.times() == ["timestamp:7000"]


@pytest.mark.parametrize(
    "given",
    [
        {"subscribe": ""},
        {"subscribe": "a b"},
        {"subscribePattern": "t"},
        {"startingOffsets": "{}}"},
        {"startingOffsets": '{"t":{"0":-3}}'},
        {"startingOffsets": '{"t":[1]}'},
        {"startingTimestamp": "-1"},
        {"endingOffsets": "earliest"},
        {"startingOffsetsByTimestampStrategy": "maybe"},
        {"failOnDataLoss": "yes"},
        {"maxOffsetsPerTrigger": "-5"},
        {"endpoints": "host"},
        {"endpoints": "host:99999"},
        {"endpoints": ","},
        {"startOffset": "1"},
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"t":{"0":1.5}}'},
        {"startingOffsets": '{"t":{"0":null}}'},
        {"startingOffsets": '{"t":5}'},
        {"endingOffsets": '{"t":{"0":-2}}'},
        {"endpoints": "http://host:9250"},
        {"minPartitions": "many"},
    ],
)
def test_wrong_ones_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        parse(**given)


@pytest.mark.parametrize("text", ['{"t":0}', "{}", '["t"]', '{"t":[0.5]}', '{"t":["x"]}'])
def test_assignments_are_checked(text: str) -> None:
    with pytest.raises(OptionError, match="needed|whole number"):
        ReadOptions.parse({"assign": text}, stream=False)


@pytest.mark.parametrize(
    "name", ("user", "password", "kafka.sasl.jaas.config", "kafka.security.protocol")
)
def test_credentials_are_not_passed_over(name: str) -> None:
    """And what they are is not repeated in a message."""
    with pytest.raises(OptionError, match="a user's token") as raised:
        parse(**{name: "s3cret"})
    assert "s3cret" not in str(raised.value)
    assert parse(**{"kafka.security.protocol": "PLAINTEXT"}) == parse()


@pytest.mark.parametrize("options", (ReadOptions, WriteOptions))
def test_a_token_is_given_or_is_in_a_file(options: Any, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("barco_abc\n")

    def parsed(**given: str) -> Any:
        if options is WriteOptions:
            return WriteOptions.parse({"topic": "t", "endpoints": "a:1"} | given)
        return parse(endpoints="a:1", **given)

    for given in ({"token": "barco_abc"}, {"tokenFile": str(file)}):
        found = parsed(**given)
        assert found.access == Access(("a:1",), "barco_abc")
        assert found.access.to("b:2").token == "barco_abc" and "barco_abc" not in repr(found)
    for given, why in (
        ({"token": "barco_abc", "tokenFile": str(file)}, "one of them"),
        ({"tokenFile": str(tmp_path / "none")}, "tokenFile: cannot read"),
        ({"tokenFile": str(tmp_path)}, "tokenFile: cannot read"),
        ({"token": "s3cret\r\nX: y"}, "option token: a token is"),
        ({"token": "s3cret" * 30}, "option token: a token is"),
    ):
        with pytest.raises(OptionError, match=why) as raised:
            parsed(**given)
        assert "s3cret" not in str(raised.value)
    file.write_text("\n")
    with pytest.raises(OptionError, match="tokenFile: a token is"):
        parsed(tokenFile=str(file))
    assert parse(token="barco_abc").access.endpoints == parse().access.endpoints


def test_patterns_are_checked() -> None:
    with pytest.raises(OptionError, match="regular expression"):
        ReadOptions.parse({"subscribePattern": "("}, stream=False)


@pytest.mark.parametrize(
    "name",
    (
        "groupIdPrefix", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
        "kafkaConsumer.pollTimeoutMs", "kafka.max.poll.records", "kafka.acks",
    ),
)  # fmt: skip
def test_kafkas_own_settings_are_refused_by_name(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name.lower()}: it is of Kafka's client"):
        parse(**{name: "3"})
    with pytest.raises(OptionError, match=f"option {name.lower()}: it is of Kafka's client"):
        WriteOptions.parse({"topic": "t", name: "3"})


@pytest.mark.parametrize("name", ("groupId", "kafka.group.id"))
def test_the_group_of_a_stream(name: str) -> None:
    assert parse(stream=True, **{name: "a group"}).group == "a group"
    for stream, text in ((False, "g"), (True, ""), (True, "\n")):
        with pytest.raises(OptionError):
            parse(stream=stream, **{name: text})


def test_offsets_as_the_progress_of_a_stream_has_them() -> None:
    text = '{"t":{"-9/0":"00000004-000000000000001f","0/3":"00000004-0000000000000000"}}'
    for which in ("startingOffsets", "endingOffsets"):
        options = parse(**{which: text})
        places = options.starting if which == "startingOffsets" else options.ending
        assert places.of("t", 0, "?", "-9/0") == 31 and places.of("t", 1, "?", "0/1") == "?"
    for wrong in ('{"t":{"0/0":"7"}}', '{"t":{"a/0":"00000004-000000000000001f"}}'):
        with pytest.raises(OptionError):
            parse(startingOffsets=wrong)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="batch reads only"):
        parse(stream=True, endingOffsets="latest")


@pytest.mark.parametrize(
    ("text", "seconds"), [("250", 0.25), ("30s", 30), ("15m", 900), ("2 h", 7200), ("5ms", 0.005)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds
    with pytest.raises(ValueError, match="such as"):
        duration_s(text + "x")
