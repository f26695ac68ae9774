"""What a command of a broker shows to others."""

from pathlib import Path

import pytest
from reference.certificates import authority, issued

from barco.cli.shared.shown import own_access
from barco.client.wire.access import own_in
from barco.config import Config
from barco.errors import ConfigError


def test_a_broker_s_own_certificate_may_be_a_credential_of_its_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = authority(tmp_path)
    issued(tmp_path, ca, "barco_broker")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("BARCO_CA", str(ca.certificate))
    monkeypatch.delenv("BARCO_TOKEN_FILE", raising=False)
    files = {"certificate": "credential:broker.crt", "key": "credential:broker.key"}
    config = Config().override("tls", **files, client_ca="credential:clients.crt")
    access = own_access(config, "127.0.0.1:9250")
    assert access.tls is not None
    shown = own_in(tmp_path / "barco_broker.crt", tmp_path / "barco_broker.key")
    assert access.tls.own == shown != ""
    plain = own_access(config.override("tls", client_ca=""), "127.0.0.1:9250")
    assert plain.tls is not None and plain.tls.own == ""
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="to ask 127.0.0.1:9250 with TLS"):
        own_access(config, "127.0.0.1:9250")
