"""What an access is made of."""

import ssl
from pathlib import Path

import pytest
from reference.certificates import authority

from barco.client.wire.access import Access, Tls
from barco.spark.base.options import OptionError, ReadOptions


def test_https_is_sealed_and_nothing_else() -> None:
    assert Access.of("a:1,http://b:2") == Access(("a:1", "b:2"))
    sealed = Access.of(["https://a:1", "https://b:2/"])
    assert sealed == Access(("a:1", "b:2"), tls=Tls()) and str(sealed) == "https://a:1,https://b:2"
    assert sealed.to("c:3").tls is sealed.tls and Access.of(str(sealed)) == sealed
    with pytest.raises(ValueError, match="or none is"):
        Access.of("https://a:1,b:2")
    with pytest.raises(ValueError, match="is for https"):
        Access.of("a:1", ca="x")
    with pytest.raises(ValueError, match="not an endpoint"):
        Access.of("https://a")


def test_whom_it_trusts(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    usual = Access.of("https://a:1", ca=ca.certificate).tls
    assert usual is not None and usual.ca == ca.certificate.read_text()
    context = usual.context()
    assert context is usual.context() and context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname and context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert len(context.get_ca_certs()) == 1


def test_spark_is_given_a_text(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    given = {"endpoints": "https://a:1", "ca": str(ca.certificate), "subscribe": "t"}
    options = ReadOptions.parse(given, stream=False)
    assert options.access == Access(("a:1",), tls=Tls(ca.certificate.read_text()))
    with pytest.raises(OptionError, match="ca: cannot read"):
        ReadOptions.parse(given | {"ca": str(tmp_path / "none")}, stream=False)
