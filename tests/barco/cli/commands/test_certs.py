"""`barco certs`: what openssl and Python's ssl say of the files, and what is never written over."""

import json
import os
import shutil
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from barco import config as configuration
from barco.cli import main
from barco.config import Config

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
with_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster's files, a client's among them; look, and change nothing."""
    directory = tmp_path_factory.mktemp("certs") / "certs"
    brokers = [word for host in HOSTS for word in ("--broker", f"{host},b{host[-1]}.example")]
    assert main(["certs", "init", "--dir", str(directory), *brokers]) == 0
    assert main(["certs", "client", "dash@home", "--dir", str(directory)]) == 0
    return directory


@pytest.fixture
def own(made: Path, tmp_path: Path) -> Path:
    """The same files, to be changed."""
    return Path(shutil.copytree(made, tmp_path / "own"))


def context(directory: Path, name: str, *, server: bool, ca: str = "ca") -> ssl.SSLContext:
    """As it stands there with that certificate; ca: whom it believes."""
    protocol = ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT
    made = ssl.SSLContext(protocol)
    made.load_verify_locations(directory / f"{ca}.crt")
    made.load_cert_chain(directory / f"{name}.crt", directory / f"{name}.key")
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    return made


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> dict[str, object]:
    """What the server has read in the client's certificate. ssl.SSLError: one refused the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = server.wrap_bio(to_server, to_client, server_side=True)
    there = client.wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(10):
        for end in (there, here):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert there.version() == here.version() == "TLSv1.3"
    here.write(b"read by the client, so both have finished")
    there.read()
    return dict(here.getpeercert() or {})


def shown(directory: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict]:
    capsys.readouterr()
    code = main(["certs", "show", "--dir", str(directory), "--json", *more])
    found = json.loads(capsys.readouterr().out)["certificates"]
    return code, {Path(each["file"]).stem: each for each in found}


@with_openssl
def test_openssl_takes_them_for_what_they_are_for(made: Path) -> None:
    def verified(name: str, purpose: str) -> bool:
        words = ["openssl", "verify", "-x509_strict", "-purpose", purpose]
        ca = "clients-ca" if name.startswith("client-") else "ca"
        words += ["-CAfile", str(made / f"{ca}.crt"), str(made / f"{name}.crt")]
        return subprocess.run(words, check=False, capture_output=True, timeout=60).returncode == 0

    for ordinal in range(len(HOSTS)):
        assert verified(f"broker-{ordinal}", "sslserver")
        assert verified(f"broker-{ordinal}", "sslclient")
    assert verified("client-dash@home", "sslclient")
    assert not verified("client-dash@home", "sslserver")


def test_brokers_know_each_other_by_their_uri(made: Path) -> None:
    uuid = configuration.cluster_uuid(Config().override("cluster", brokers=HOSTS))
    for ordinal, host in enumerate(HOSTS):
        other = (ordinal + 1) % len(HOSTS)
        told = handshake(
            context(made, f"broker-{ordinal}", server=True),
            context(made, f"broker-{other}", server=False),
            host,
        )
        names = told["subjectAltName"]
        assert ("URI", f"barco:{uuid}/{other}") in names
        assert ("IP Address", HOSTS[other]) in names and ("DNS", f"b{other + 1}.example") in names


def test_who_is_of_another_authority_or_of_another_name_is_refused(
    made: Path, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["certs", "init", "--dir", str(own), "--force", "--broker", "127.0.0.1"]
    assert main(words) == 0
    server = context(made, "broker-0", server=True)
    with pytest.raises(ssl.SSLError):
        handshake(server, context(own, "broker-0", server=False), HOSTS[0])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, context(made, "broker-1", server=False), HOSTS[1])
    client = context(made, "client-dash@home", server=False)
    with pytest.raises(ssl.SSLError):  # A client's certificate opens no port of brokers,
        handshake(server, client, HOSTS[0])
    with pytest.raises(ssl.SSLError):  # and does not make it one,
        fake = context(made, "client-dash@home", server=True)
        handshake(fake, context(made, "broker-1", server=False, ca="clients-ca"), HOSTS[0])
    # but opens those of clients.
    server = context(made, "broker-0", server=True, ca="clients-ca")
    told = handshake(server, client, HOSTS[0])
    assert told["subject"] == ((("commonName", "dash@home"),),) and "subjectAltName" not in told
    code, found = shown(own, capsys)
    assert code == 1 and "has not signed it" in found["broker-1"]["faults"][0]
    assert main(["certs", "renew", "broker-1", "--dir", str(own)]) == 1
    assert "another authority" in capsys.readouterr().err


def test_keys_are_closed_and_nothing_is_written_over(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in own.iterdir():
        wanted = 0o600 if path.suffix == ".key" else 0o644
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    before = {path: path.read_bytes() for path in own.iterdir()}
    brokers = [word for host in HOSTS for word in ("--broker", host)]
    where = ("--dir", str(own))
    assert main(["certs", "init", *where, *brokers]) == 1
    assert main(["certs", "issue", "1", *where, *brokers]) == 1
    assert main(["certs", "client", "dash@home", *where]) == 1
    assert "would be written over" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in own.iterdir()} == before
    assert main(["certs", "issue", "1", "--force", *where, *brokers]) == 0
    changed = {path.name for path in own.iterdir() if path.read_bytes() != before[path]}
    assert changed == {"broker-1.key", "broker-1.crt"}


def test_a_broker_that_comes_later(own: Path, tmp_path: Path) -> None:
    """Its uuid is that of the first three, as brokers derive it."""
    file = tmp_path / "barco.toml"
    listed = ", ".join(f'"{host}"' for host in (*HOSTS, "127.0.0.4"))
    file.write_text(
        f"[broker]\nordinal = 3\nadvertise = 'four.example'\n[cluster]\nbrokers = [{listed}]\n"
        "[clients]\nhosts = ['all.example', 'https://page.example', '*']\n"
    )
    assert main(["certs", "issue", "3", "--dir", str(own), "--config", str(file)]) == 0
    told = handshake(
        context(own, "broker-0", server=True), context(own, "broker-3", server=False), HOSTS[0]
    )
    uuid = configuration.cluster_uuid(Config().override("cluster", brokers=HOSTS))
    assert told["subjectAltName"] == (
        *(("URI", f"barco:{uuid}/3"), ("IP Address", "127.0.0.4")),
        *(("DNS", "all.example"), ("DNS", "four.example")),
    )
    assert main(["certs", "issue", "4", "--dir", str(own), "--config", str(file)]) == 1


@pytest.mark.parametrize("words", [[], ["--new-key"]])
def test_renewed_ones_say_the_same_for_longer(
    own: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    _, before = shown(own, capsys)
    keys = {path.name: path.read_bytes() for path in own.glob("*.key")}
    assert main(["certs", "renew", "--dir", str(own), "--days", "500", *words]) == 0
    code, after = shown(own, capsys)
    assert code == 0
    for name, each in after.items():
        same = ("subject", "names", "authority")
        assert [each[key] for key in same] == [before[name][key] for key in same]
        assert (each["serial"] != before[name]["serial"]) == (not name.endswith("ca"))
        assert each["daysLeft"] == pytest.approx(3650 if each["authority"] else 500, abs=0.2)
    kept = {name for name, key in keys.items() if (own / name).read_bytes() == key}
    assert kept == ({"ca.key", "clients-ca.key"} if words else set(keys))
    server, peer = context(own, "broker-0", server=True), context(own, "broker-1", server=False)
    handshake(server, peer, HOSTS[0])


def test_a_renewed_authority_is_the_same_one(
    own: Path, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certs", "renew", "ca", "--dir", str(own), "--days", "5000"]) == 0
    assert (own / "ca.key").read_bytes() == (made / "ca.key").read_bytes()
    assert (own / "ca.crt").read_bytes() != (made / "ca.crt").read_bytes()
    handshake(
        context(own, "broker-0", server=True), context(made, "broker-1", server=False), HOSTS[0]
    )
    assert shown(own, capsys)[0] == 0


@pytest.mark.parametrize("renames", [0, 1, 2, 3])
def test_who_is_cut_off_has_the_old_or_the_new_one(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], renames: int
) -> None:
    """After any number of renames the next command finds every key beside its certificate."""
    real, left = os.replace, [renames]

    def replace(source: Path, target: Path) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        words = ["certs", "renew", "broker-0", "broker-1", "--new-key", "--dir", str(own)]
        assert main(words) == 130
    code, found = shown(own, capsys)
    assert code == 0 and not any(each["faults"] for each in found.values())
    server, peer = context(own, "broker-0", server=True), context(own, "broker-1", server=False)
    handshake(server, peer, HOSTS[0])


def test_a_disk_that_is_full_changes_nothing(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in own.iterdir()}

    def fsync(fd: int) -> None:
        raise OSError(28, "No space left on device", str(own / "x"))

    monkeypatch.setattr(os, "fsync", fsync)
    assert main(["certs", "renew", "--dir", str(own)]) == 1
    assert "still there" in capsys.readouterr().err
    assert before == {name: (own / name).read_bytes() for name in before}


def test_show_says_what_has_to_be_done(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certs", "renew", "broker-0", "--days", "29", "--dir", str(own)]) == 0
    (own / "broker-1.key").chmod(0o640)
    shutil.copy(own / "broker-1.key", own / "broker-2.key")
    code, found = shown(own, capsys)
    assert code == 1
    assert "ends in 29 days: barco certs renew broker-0" in found["broker-0"]["faults"][0]
    assert "chmod 600" in found["broker-1"]["faults"][0]
    assert "is not its key" in found["broker-2"]["faults"][-1]
    assert not found["ca"]["faults"] and not found["client-dash@home"]["faults"]
    assert shown(own, capsys, "--within", "28")[1]["broker-0"]["faults"] == []
    assert main(["certs", "show", "--dir", str(own)]) == 1
    out, err = capsys.readouterr()
    assert "barco-0" in out and "broker-1.crt" in err


def test_a_client_that_nobody_will_know_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A --dir that is misspelt would make an authority in silence; a name may be no user's."""
    for name, told, untold in (
        ("sensors", "is a new authority", "can be no user's name"),
        ("dash@home", "can be no user's name", "is a new authority"),
        ("readers", "", "authority"),
    ):
        assert main(["certs", "client", name, "--dir", str(tmp_path / "d")]) == 0
        found = capsys.readouterr().err
        assert told in found and untold not in found, found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["show"], "barco certs init"),
        (["renew"], "no certificate"),
        (["renew", "ca"], "no ca.key"),
        (["renew", "client-x"], "no clients-ca.key"),
        (["client", "a/b"], "is no name"),
        (["init", "--broker", "a b"], "neither an address nor a host name"),
        (["init", "--broker", "a", "--broker", "b", "--broker", "c"], "give --cluster"),
        (["init", "--broker", "::1", "--cluster", "1"], "not 32 hexadecimal digits"),
        (["init", "--config", "nowhere.toml"], "cannot read nowhere.toml"),
    ],
)
def test_errors_say_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    code = main(["certs", words[0], "--dir", str(tmp_path / "d"), *words[1:]])
    assert code == (78 if "--config" in words else 1)
    assert told in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_what_is_no_certificate(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for data in (b"", b"x" * 70_000, b"-----BEGIN CERTIFICATE-----\nAAAA\n"):
        (own / "broker-0.crt").write_bytes(data)
        assert main(["certs", "show", "--dir", str(own)]) == 1
        assert "broker-0.crt" in capsys.readouterr().err


def test_without_the_package_it_says_how_to_get_it() -> None:
    script = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from barco.cli import main\nsys.exit(main(['certs', 'show']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and "pip install 'barco[certs]'" in done.stderr
