"""A broker's certificate: what is refused, in words, and what is told of its end."""

import os
import time
from pathlib import Path

import pytest
from reference.certificates import Files, authority, issued

from barco.config import Config
from barco.errors import ConfigError
from barco.supervisor.files.certificate import DAY_SECONDS, Certified, expiry, read_certificate
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
