"""A broker's certificate: what is refused, in words, and what is told of its end."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from reference.certificates import Files, authority, broker, issued

from barco.config import Config
from barco.errors import ConfigError
from barco.supervisor.files.certificate import (
    DAY_SECONDS,
    Certified,
    expiry,
    read_certificate,
    read_mutual,
)
from barco.supervisor.sources.changes import changes


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Files, Files, Files]:
    """An authority, and two that it has signed."""
    path = tmp_path_factory.mktemp("certificates")
    ca = authority(path)
    return ca, issued(path, ca, "one"), issued(path, ca, "two")


def sealed(files: Files, **more: object) -> Config:
    return Config().override("tls", certificate=str(files.certificate), key=str(files.key), **more)


def refusal(config: Config, now_s: float | None = None) -> str:
    with pytest.raises(ConfigError) as refused:
        read_certificate(config, now_s)
    assert refused.value.exit_code == 78
    return refused.value.detail


def test_a_good_one_is_read(made: tuple[Files, Files, Files]) -> None:
    ca, one, _ = made
    found = read_certificate(sealed(one, client_ca=str(ca.certificate)))
    assert found is not None and found.ca == ca.certificate.read_text()
    assert 89 < (found.until_s - time.time()) / DAY_SECONDS < 91
    assert "PRIVATE" not in repr(found) and read_certificate(Config()) is None


def test_what_is_refused(made: tuple[Files, Files, Files], tmp_path: Path) -> None:
    _, one, two = made
    both = sealed(one)
    assert "tls.key is not set" in refusal(both.override("tls", key=""))
    assert "tls.certificate is not set" in refusal(both.override("tls", certificate=""))
    assert "TLS needs a certificate" in refusal(Config().override("tls", client_ca="x"))
    assert "No such file" in refusal(both.override("tls", certificate=str(tmp_path / "none")))
    assert "is no file" in refusal(both.override("tls", key=str(tmp_path)))
    assert "not that of the certificate" in refusal(both.override("tls", key=str(two.key)))
    assert "no PEM file" in refusal(both.override("tls", certificate=str(two.key)))
    assert "client_ca" in refusal(sealed(one, client_ca=str(one.key)))
    later = time.time() + 91 * DAY_SECONDS
    assert "has expired" in refusal(both, later)
    assert "is the clock right" in refusal(both, time.time() - DAY_SECONDS)
    large = tmp_path / "large"
    large.write_bytes(b"x" * 70_000)
    assert "more than 64 KiB" in refusal(both.override("tls", certificate=str(large)))
    large.write_bytes(b"")  # It would be as if none were configured.
    assert "is empty" in refusal(sealed(one, client_ca=str(large)))
    large.write_bytes(b"\xff")
    assert "plain text" in refusal(both.override("tls", certificate=str(large)))


def test_a_key_is_for_its_owner(made: tuple[Files, Files, Files], tmp_path: Path) -> None:
    _, one, _ = made
    key = tmp_path / "key"
    key.write_bytes(one.key.read_bytes())
    for mode in (0o600, 0o640, 0o400):
        os.chmod(key, mode)
        assert read_certificate(sealed(Files(one.certificate, key))) is not None
    for mode in (0o644, 0o660, 0o700, 0o604):
        os.chmod(key, mode)
        assert f"{mode:04o}" in refusal(sealed(Files(one.certificate, key)))


def test_a_reload_takes_other_files_and_other_keys_of_tickets(
    made: tuple[Files, Files, Files],
) -> None:
    _, one, two = made
    certified = Certified(sealed(one))
    before = certified.told()["clients"]
    assert "another certificate" in certified.renew(sealed(two))
    after = certified.told()["clients"]
    assert after["certificate"] == two.certificate.read_text()
    assert before["ticket_keys"] != after["ticket_keys"] and len(after["ticket_keys"]) == 160
    with pytest.raises(ConfigError):
        certified.renew(sealed(Files(one.certificate, two.key)))
    assert certified.told() == {"clients": after}
    assert certified.renew(Config()) == "" and Certified(Config()).renew(sealed(one)) == ""
    assert Certified(Config()).told() == {}


def test_a_reload_says_which_certificates_clients_need(made: tuple[Files, Files, Files]) -> None:
    ca, one, two = made
    certified = Certified(sealed(one, client_ca=str(ca.certificate)))
    assert "clients" not in certified.renew(sealed(one, client_ca=str(ca.certificate)))
    other = certified.renew(sealed(one, client_ca=str(two.certificate)))
    assert other.startswith("the certificate counts") and other.endswith("of another client_ca")
    assert certified.renew(sealed(one)).endswith("clients need none any more")
    assert "clients" not in certified.renew(sealed(one))


def test_only_to_begin_or_end_with_tls_takes_a_start(made: tuple[Files, Files, Files]) -> None:
    _, one, two = made
    assert changes(sealed(one), (), sealed(two)).later == ()
    assert changes(Config(), (), sealed(two)).later == ("tls.certificate", "tls.key")
    assert changes(sealed(one), (), Config()).later == ("tls.certificate", "tls.key")


def test_the_end_is_told_thirty_days_ahead() -> None:
    end = 1_800_000_000
    assert expiry(end, end - 30.1 * DAY_SECONDS) == ""
    assert "in 29 days" in expiry(end, end - 29.5 * DAY_SECONDS)
    assert "in 0 days" in expiry(end, end - 1) and "has expired" in expiry(end, end)


UUID = "a" * 32
BROKERS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


def ring(by: Files, files: Files, **more: object) -> Config:
    """As broker 1 of three has it."""
    named: dict[str, object] = {
        "brokers": BROKERS,
        "ca": str(by.certificate),
        "certificate": str(files.certificate),
        "key": str(files.key),
    }
    config = Config().override("cluster", uuid=UUID, **(named | more))
    return config.override("broker", ordinal=1)


def refusal_between(config: Config) -> str:
    with pytest.raises(ConfigError) as refused:
        read_mutual(config)
    assert refused.value.exit_code == 78
    return refused.value.detail


def test_what_others_would_not_believe_is_not_begun_with(tmp_path: Path) -> None:
    ca, other = authority(tmp_path), authority(tmp_path, "other")
    name = f"barco:{UUID}/"
    good = broker(tmp_path, ca, "good", f"{name}1")
    found = read_mutual(ring(ca, good))
    assert found is not None and found.ca == ca.certificate.read_text()
    assert read_mutual(ring(ca, good, ca="", certificate="", key="")) is None
    assert read_mutual(ring(ca, good, brokers=())) is None, "there is nobody to show it to"
    for key in ("ca", "certificate", "key"):
        assert f"cluster.{key} is not set" in refusal_between(ring(ca, good, **{key: ""}))
    for files, words in (
        (broker(tmp_path, ca, "two", f"{name}2"), f"is {name}2, and has to be {name}1"),
        (broker(tmp_path, ca, "else", f"barco:{'b' * 32}/1"), f"has to be {name}1"),
        (issued(tmp_path, ca, "none"), f"is none, and has to be {name}1"),
        (broker(tmp_path, other, "other1", f"{name}1"), "would refuse it: "),
        (broker(tmp_path, ca, "calls", f"{name}1", use="clientAuth"), "unsuitable certificate"),
        (broker(tmp_path, ca, "old", f"{name}1", days=-1), "has expired on"),
    ):
        assert words in refusal_between(ring(ca, files))
    good.key.chmod(0o644)
    assert "cluster.key" in refusal_between(ring(ca, good))


def test_a_reload_takes_what_is_shown_to_other_brokers(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    one = broker(tmp_path, ca, "one", f"barco:{UUID}/1")
    two = broker(tmp_path, ca, "two", f"barco:{UUID}/1", days=80)
    wrong = broker(tmp_path, ca, "wrong", f"barco:{UUID}/2")
    certified = Certified(ring(ca, one), UUID)
    assert certified.mutual.is_on and set(certified.told()) == {"brokers"}
    said = certified.renew(ring(ca, two))
    assert "another certificate between brokers counts" in said
    told = certified.told()
    assert told["brokers"]["certificate"] == two.certificate.read_text()
    assert certified.mutual.until_s == told["brokers"]["until"]
    with pytest.raises(ConfigError):
        certified.renew(ring(ca, wrong))
    assert certified.told() == told
    assert changes(ring(ca, one), BROKERS, ring(ca, two)).later == ()
    plain = ring(ca, one, ca="", certificate="", key="")
    names = ("cluster.ca", "cluster.certificate", "cluster.key")
    assert changes(plain, BROKERS, ring(ca, two)).later == names
    assert not Certified(plain, UUID).mutual.is_on


def test_what_is_required_counts_from_a_start_on(tmp_path: Path) -> None:
    """Connections that stand may be plain: a reload would not be what it says."""
    ca = authority(tmp_path)
    one = broker(tmp_path, ca, "one", f"barco:{UUID}/1")
    lax, strict = ring(ca, one, tls_required=False), ring(ca, one)
    certified = Certified(lax, UUID)
    assert certified.mutual.tls is False and certified.told()["brokers"]["required"] is False
    certified.renew(strict)
    assert certified.mutual.tls is False and certified.told()["brokers"]["required"] is False
    assert changes(lax, BROKERS, strict).later == ("cluster.tls_required",)
    assert Certified(strict, UUID).mutual.tls is True
    assert Certified(ring(ca, one, ca="", certificate="", key=""), UUID).mutual.tls is None


def test_who_lets_plain_brokers_in_is_told_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca = authority(tmp_path)
    one = broker(tmp_path, ca, "one", f"barco:{UUID}/1", days=200)

    async def begun(certified: Certified) -> None:
        watching = asyncio.create_task(certified.watch(lambda told: None))
        await asyncio.sleep(0)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    for required in (True, False):
        asyncio.run(begun(Certified(ring(ca, one, tls_required=required), UUID)))
        told = [each.getMessage() for each in caplog.records]
        assert any("brokers without TLS are let in" in each for each in told) is not required


def test_the_end_between_brokers_is_told() -> None:
    said = expiry(1_800_000_000, 1_800_000_000, "TLS certificate between brokers", "the others")
    assert said.startswith("the TLS certificate between brokers has expired: the others turn away")
