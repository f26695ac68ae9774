"""The cluster's secret: where it is needed, and in which files it is refused."""

from pathlib import Path

import pytest

from barco.config import Config
from barco.errors import ConfigError
from barco.sections import ClusterSection
from barco.supervisor.files.credentials import file_named
from barco.supervisor.secret import make_secret, read_secret

LOCAL = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
FAR = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


def config(brokers: tuple[str, ...], path: Path | str = "") -> Config:
    return Config(cluster=ClusterSection(brokers=brokers, secret_file=str(path)))


def test_only_brokers_of_one_machine_may_be_without() -> None:
    assert read_secret(config(())) == read_secret(config(LOCAL)) == b""
    for brokers in (FAR, (*LOCAL[:2], FAR[2])):
        with pytest.raises(ConfigError, match="barco format makes one") as refused:
            read_secret(config(brokers))
        assert refused.value.exit_code == 78


def test_one_is_made_once_and_read_by_all(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with pytest.raises(ConfigError, match="copy it from another broker"):
        read_secret(config(FAR, path))
    assert make_secret(config(FAR, path)) == path
    assert path.stat().st_mode & 0o777 == 0o600
    secret = read_secret(config(FAR, path))
    assert len(secret) == 64 and make_secret(config(LOCAL, path)) is None
    assert read_secret(config(LOCAL, path)) == secret


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text("s" * 64)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_secret(config(FAR, path))


@pytest.mark.parametrize("text", ["", "short", "x" * 5000])
def test_what_is_no_secret(tmp_path: Path, text: str) -> None:
    path = tmp_path / "secret"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="a secret has 32 to 4096"):
        read_secret(config(FAR, path))
    with pytest.raises(ConfigError, match="nobody but its owner"):
        read_secret(config(FAR, tmp_path))


def test_one_that_systemd_hands_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name that the unit's LoadCredential= gives it; by hand, where it lies."""
    assert file_named("/a/credential:b") == Path("/a/credential:b")
    assert file_named("credential:secret", {}) == Path("/etc/barco/credentials/secret")
    path = tmp_path / "barco_secret"
    path.write_text("s" * 64)
    path.chmod(0o400)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert read_secret(config(FAR, "credential:secret")) == b"s" * 64
    path.chmod(0o440)  # Only in systemd's own directory do these bits mean something else.
    with pytest.raises(ConfigError, match="chmod 600"):
        read_secret(config(FAR, "credential:secret"))
