"""What commands beside a broker, and a restored one's start, hear of brokers with TLS and users."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reference.certificates import Files, authority, issued
from running import RunningBroker

from barco.cli.commands.check import neighbours
from barco.cli.shared.joining import joining
from barco.cli.shared.known import ask_others, others_went_on
from barco.config import Config
from barco.errors import ConfigError
from barco.model.access import hash_of
from barco.supervisor.files.first_users import NAME, add
from barco.supervisor.files.restored import RESTORED

TOKEN = "barco_root"


class Other:
    """A broker that is asked, and the configuration of the one that asks."""

    def __init__(self, path: Path, *, client_ca: bool = False, restored: bool = False) -> None:
        self.ca = authority(path)
        shown: Files = issued(path, self.ca, "shown")
        tls = {"certificate": str(shown.certificate), "key": str(shown.key)}
        if client_ca:
            tls["client_ca"] = str(authority(path, "others").certificate)
        data = path / "data"
        data.mkdir(mode=0o700)
        add(data / NAME, "root", hash_of(TOKEN).hex())
        (path / "token").write_text(TOKEN)
        self.token = path / "token"
        settings: dict[str, Any] = {f"tls_{name}": value for name, value in tls.items()}
        self.broker = RunningBroker(data, workers=1, access_required=True, **settings)
        self.broker.start()
        if restored:
            self.broker.stop()
            (data / RESTORED).touch()
            self.broker.start()
        config = Config().override("cluster", brokers=["127.0.0.1", "127.0.0.2", "127.0.0.3"])
        config = config.override("broker", ordinal=1)
        config = config.override("ports", discovery=self.broker.port("discovery"))
        self.config = config.override("tls", **tls)


@pytest.fixture
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Other]:
    found = Other(tmp_path, **getattr(request, "param", {}))
    yield found
    found.broker.end()


def test_who_asks_for_a_token_and_tls_is_there(
    other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BARCO_TOKEN_FILE", raising=False)
    monkeypatch.delenv("BARCO_CA", raising=False)
    (went_on,) = others_went_on(other.config)
    assert "broker 0 at 127.0.0.1" in went_on
    with pytest.raises(ConfigError, match=r"local issuer certificate.*BARCO_CA"):
        joining(other.config)
    monkeypatch.setenv("BARCO_CA", str(other.ca.certificate))
    said = [each.words for each in neighbours.look(other.config) if each.area == neighbours.AREA]
    assert ["asks for a token" in each for each in said] == [True, False]
    (went_on,) = others_went_on(other.config)
    assert "broker 0 at 127.0.0.1" in went_on
    monkeypatch.setenv("BARCO_TOKEN_FILE", str(other.token))
    said = [each.words for each in neighbours.look(other.config) if each.area == neighbours.AREA]
    assert "another cluster" in said[0]  # It was understood: it is a single one.
    with pytest.raises(ConfigError, match="another cluster"):
        list(ask_others(other.config))
    plain = other.config.override("tls", certificate="", key="")
    assert others_went_on(plain)


@pytest.mark.parametrize("other", [{"restored": True}], indirect=True)
def test_one_that_was_restored_as_well_says_so_to_everybody(other: Other) -> None:
    assert others_went_on(other.config) == []


@pytest.mark.parametrize("other", [{"client_ca": True}], indirect=True)
def test_who_wants_a_certificate_of_another_ca_is_there(other: Other) -> None:
    assert others_went_on(other.config)
    other.broker.kill()
    assert others_went_on(other.config) == []  # Nobody is.
