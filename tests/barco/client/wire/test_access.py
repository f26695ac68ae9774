"""What an access is made of."""

import pickle
import ssl
import subprocess
from pathlib import Path

import pytest
from reference.certificates import authority, issued

from barco.client.wire.access import Access, Tls, own_in
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
    with pytest.raises(OptionError, match="ca, certificate: cannot use .*none"):
        ReadOptions.parse(given | {"ca": str(tmp_path / "none")}, stream=False)


def test_its_own_certificate(tmp_path: Path) -> None:
    """The key is given, in the same file, or beside it; what is kept is a text, which nobody reads
    by mistake; what can not be used is told in words."""
    ca = authority(tmp_path)
    own = issued(tmp_path, ca, "job")
    both = tmp_path / "both.pem"
    both.write_text("# für job\n" + own.key.read_text() + own.certificate.read_text(), "utf-8")
    elsewhere = own.key.rename(tmp_path / "elsewhere")
    for given in ({"certificate": both}, {"certificate": own.certificate, "key": elsewhere}):
        found = Access.of("https://a:1", ca=ca.certificate, **given).tls
        assert found is not None and "PRIVATE KEY" in found.own
        assert "PRIVATE" not in repr(found) and pickle.loads(pickle.dumps(found)) == found
        found.context()
    with pytest.raises(FileNotFoundError, match=r"job\.key"):
        own_in(own.certificate)
    elsewhere.rename(own.key)
    assert own_in(own.certificate) == own.certificate.read_text() + "\n" + own.key.read_text()
    with pytest.raises(ssl.SSLError):
        Tls(own=own_in(own.certificate, ca.key)).context()
    words = ["openssl", "ec", "-aes128", "-passout", "pass:x", "-in", own.key, "-out", both]
    subprocess.run(words, check=True, capture_output=True)
    with pytest.raises(ValueError, match="has a passphrase"):
        Tls(own=own_in(own.certificate, both)).context()
    options = {"endpoints": "https://a:1", "subscribe": "t", "certificate": str(own.certificate)}
    assert ReadOptions.parse(options, stream=False).access.tls == Tls(own=own_in(own.certificate))
    with pytest.raises(OptionError, match="is for https"):
        ReadOptions.parse(options | {"endpoints": "a:1"}, stream=False)
    own.key.unlink()
    with pytest.raises(OptionError, match=r"certificate: cannot use .*job\.key"):
        ReadOptions.parse(options, stream=False)
