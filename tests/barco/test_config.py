"""The configuration: its sources, what is refused, and how clearly."""

import dataclasses
from pathlib import Path

import pytest

from barco import addresses, config
from barco.config import Config
from barco.errors import ConfigError


def load(text: str, tmp_path: Path, **environment: str) -> Config:
    path = tmp_path / "barco.toml"
    path.write_text(text, "utf-8")
    return config.load(path, environment)


def test_nothing_has_to_be_configured() -> None:
    nothing = config.load(None, {})
    assert nothing == Config()
    assert nothing.broker.bind == "127.0.0.1"
    ports = dataclasses.astuple(nothing.ports)
    assert ports == (9250, 9251, 9252, 9253, 9255, 9256, 9300)


def test_43_keys_each_explained() -> None:
    keys = list(config.all_keys())
    assert len(keys) == 43  # One more has to be worth it, and a line in tuning.md.
    assert all(len(key.doc) > 5 for key in keys)
    assert len({key.variable for key in keys}) == len(keys)


def test_it_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().broker.workers = 3  # type: ignore[misc]


def test_later_sources_win(tmp_path: Path) -> None:
    text = "[limits]\nmemory_bytes = 100000000\n[topics]\nauto_create = false\n"
    loaded = load(text, tmp_path, BARCO_LIMITS_MEMORY_BYTES="200000000", HOME="/")
    assert loaded.limits.memory_bytes == 200_000_000
    assert loaded.topics.auto_create is False
    assert loaded.override("limits", memory_bytes=2**28).limits.memory_bytes == 2**28


def test_every_key_from_the_file_and_from_the_environment(tmp_path: Path) -> None:
    for key in config.all_keys():
        value = key.default
        words = {True: "true", False: "false"}
        literal = words[value] if isinstance(value, bool) else repr(value)
        literal = "[]" if value == () else literal
        text = words[value] if isinstance(value, bool) else str(value)
        text = "" if value == () else text
        assert load(f"[{key.section}]\n{key.name} = {literal}\n", tmp_path) == Config()
        assert config.load(None, {key.variable: text}) == Config()


def test_lists_in_the_environment_have_commas() -> None:
    loaded = config.load(None, {"BARCO_CLUSTER_BROKERS": "127.0.0.1, 127.0.0.2,127.0.0.3"})
    assert loaded.cluster.brokers == ("127.0.0.1", "127.0.0.2", "127.0.0.3")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[limits]\nmemroy_bytes = 1", "unknown key limits.memroy_bytes (did you mean limits.mem"),
        ("[broker]\nhosts = []", "unknown key broker.hosts (did you mean clients.hosts?)"),
        ("[limit]\nmemory_bytes = 1", "unknown section [limit] (did you mean limits?)"),
        ("memory_bytes = 1", "unknown section [memory_bytes]"),
        ("limits = 1", "limits is a section"),
        ("[broker", "is not TOML"),
        ("[broker]\nworkers = '2'", "broker.workers = '2' is not a whole number"),
        ("[broker]\nworkers = true", "broker.workers = True is not a whole number"),
        ("[broker]\nworkers = 9", "must be between 0"),
        ("[broker]\nengine = 'select'", "must be auto, io_uring, epoll"),
        ("[broker]\nbind = 'localhost'", "must be an IP address"),
        ("[cluster]\nbrokers = '127.0.0.1'", "is not a list of addresses"),
        ("[cluster]\nbrokers = ['127.0.0.1', '127.0.0.1']", "an address is there twice"),
        ("[cluster]\nslices_per_range = 6", "must be a power of two"),
        ("[topics]\nauto_create = 1", "is not true or false"),
        ("[ports]\nproduce = 9250", "is taken by ports.discovery"),
        ("[ports]\nproduce = 70000", "must be from 0 to 65535"),
        ("[limits]\nevent_bytes_max = 20000000", "must be at least limits.event_bytes_max"),
        ("[limits]\nmemory_bytes = 1", "must be between 33554432 and"),
        ("[limits]\nmemory_bytes = 33554431", "must be between 33554432 and"),
        ("[storage]\nsegment_bytes = 134217729", "must be a multiple of 4096"),
        ("[storage]\nsegment_bytes = 1048576", "at least twice limits.request_bytes_max"),
        ("[storage]\ncompression = 'zstd'", "must be one of lz4, none"),
        ("[log]\nlevel = 'loud'", "must be one of debug, info, warning, error"),
        ("[log]\nformat = 'xml'", "must be one of auto, json, text"),
        ("[access]\nrequired = true\ncertificates = true", "and tls.client_ca"),
        ("[access]\ncertificates = true\n[tls]\nclient_ca = 'c'", "needs access.required"),
        ("[trace]\none_in = -1", "must be 0 or more"),
        *(
            (f"[trace]\nendpoint = {each!r}", "must be http://HOST:PORT/PATH, or https")
            for each in (
                *("collector:4318", "ftp://h/", "http://", "http://h:0", "http://h:65536"),
                *("http://user:pass@h/", "http://h/a b", "http://h/\u00e4", "http://h\u00f6h/"),
            )
        ),
    ],
)
def test_what_is_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text, tmp_path)
    assert words in caught.value.detail
    assert "\n" not in caught.value.detail.split(" is not TOML")[0]
    assert caught.value.exit_code == 78


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("BARCO_LIMITS_MEMROY_BYTES", "1", "did you mean BARCO_LIMITS_MEMORY_BYTES?"),
        ("BARCO_BROKER_WORKERS", "two", "'two' is not a whole number"),
        ("BARCO_BROKER_WORKERS", "1_0", "is not a whole number"),
        ("BARCO_TOPICS_AUTO_CREATE", "maybe", "is not true or false"),
    ],
)
def test_what_is_refused_in_the_environment(variable: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(None, {variable: text})
    assert words in caught.value.detail


def test_variables_of_others_are_left_alone() -> None:
    assert config.load(None, {"BARCO_URL": "http://x", "BARCO": "1"}) == Config()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read .*: No such file or directory"):
        config.load(tmp_path / "absent.toml", {})


def test_ordinal_comes_from_the_host_name_in_a_cluster() -> None:
    alone = Config()
    cluster = alone.override("cluster", brokers=("127.0.0.1", "127.0.0.2", "127.0.0.3"))
    assert config.ordinal(alone, "barco-2") == 0
    assert config.ordinal(cluster, "barco-2.barco.svc") == 2
    assert config.ordinal(cluster.override("broker", ordinal=1), "barco-2") == 1


def test_data_dir_when_nobody_said() -> None:
    assert config.data_dir_default({}) == Path("barco-data")
    assert config.data_dir_default({"XDG_STATE_HOME": "/s"}) == Path("/s/barco")
    systemd = {"XDG_STATE_HOME": "/s", "STATE_DIRECTORY": "/var/lib/barco:/other"}
    assert config.data_dir_default(systemd) == Path("/var/lib/barco")


def test_loopback() -> None:
    assert addresses.is_loopback("127.0.0.9") and addresses.is_loopback("::1")
    assert not addresses.is_loopback("0.0.0.0") and not addresses.is_loopback("::")


def test_the_uuid_of_a_cluster() -> None:
    three = config.Config().override("cluster", brokers=("127.0.0.1", "127.0.0.2", "127.0.0.3"))
    derived = config.cluster_uuid(three)
    assert len(derived) == 32 and derived == config.cluster_uuid(three)
    other = three.override("cluster", brokers=("127.0.0.1", "127.0.0.2", "127.0.0.4"))
    assert config.cluster_uuid(other) != derived
    assert config.cluster_uuid(three.override("cluster", uuid="ab" * 16)) == "ab" * 16
    assert config.cluster_uuid(config.Config()) == ""
    with pytest.raises(ConfigError, match="must be 32 hexadecimal digits"):
        three.override("cluster", uuid="AB" * 16)


def test_a_broker_of_a_cluster_must_know_which_it_is() -> None:
    three = config.Config().override("cluster", brokers=("127.0.0.1", "127.0.0.2", "127.0.0.3"))
    assert config.resolved(three, "barco-2.example").broker.bind == "127.0.0.3"
    with pytest.raises(ConfigError, match="'barco' does not end in -N"):
        config.resolved(three, "barco")


def test_what_clients_are_told_is_never_every_address() -> None:
    assert addresses.advertised("127.0.0.1", "", "") == "127.0.0.1"
    assert addresses.advertised("0.0.0.0", "", "10.0.0.7") == "10.0.0.7"
    assert addresses.advertised("::", "b0.example", "::7") == "b0.example"
    with pytest.raises(ConfigError, match="set broker.advertise"):
        addresses.advertised("0.0.0.0", "", "")
    for host in ("0.0.0.0", "::", "a b", "a:9250", 'a"', "300.1.1.1", "-a", "[::1]", "a" * 64):
        with pytest.raises(ConfigError, match=r"broker\.advertise = "):
            config.Config().override("broker", advertise=host)
    for host in ("2001:db8::1", "b-0.example", "barco"):
        assert config.Config().override("broker", advertise=host).broker.advertise == host


def test_a_broker_of_a_cluster_may_listen_elsewhere_on_purpose() -> None:
    three = config.Config().override("cluster", brokers=("127.0.0.1", "127.0.0.2", "127.0.0.3"))

    def bind(**broker: str) -> str:
        return config.resolved(three.override("broker", ordinal=1, **broker)).broker.bind

    assert bind(bind="0.0.0.0") == "0.0.0.0"
    assert bind(bind="127.0.0.9", advertise="b1.example") == "127.0.0.9"
    assert bind(advertise="b1.example") == "127.0.0.2"
    with pytest.raises(ConfigError, match="which is where the other brokers look"):
        bind(bind="127.0.0.9")
    with pytest.raises(ConfigError, match="one family"):
        bind(bind="::")


def test_others_are_called_from_the_address_that_they_know() -> None:
    assert addresses.source("0.0.0.0", "127.0.0.7") == "127.0.0.7"
    assert addresses.source("0.0.0.0", "192.0.2.1") == "0.0.0.0"  # Behind a translation.
    assert addresses.source("127.0.0.1", "") == "127.0.0.1"


def test_a_file_that_is_nested_too_deep_is_refused(tmp_path: Path) -> None:
    for text in ("a = " + "[" * 100_000 + "]" * 100_000, "a = " + "{a = " * 100_000):
        with pytest.raises(ConfigError, match="nested|not TOML"):
            load(text, tmp_path)
