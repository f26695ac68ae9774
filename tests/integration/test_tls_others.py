"""TLS of a broker as other libraries see it: Go's crypto/tls and rustls, in programs that are built
here, and what OpenSSL's own command can be told to try."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from test_tls import SECONDS_MAX, SealedBroker, run, sealed

__all__ = ["sealed"]

CHECKS = (
    *("versions", "ciphers", "groups", "protocols", "resumption", "records", "half-close"),
    *("closing", "truncation", "flood"),
)
RUST_CHECKS = ("resumption", "records", "keys", "half-close")
BUILD_SECONDS = 300.0
OTHERS = Path(__file__).parent / "others"
ROOT = OTHERS.parents[2]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in Go."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go here: its crypto/tls is the second library")
    room = tmp_path_factory.mktemp("go")
    source = OTHERS / "tls.go"
    alone = {"GO111MODULE": "off", "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    made = room / "tls"
    subprocess.run(
        [go, "build", "-o", str(made), str(source)],
        check=True,
        timeout=BUILD_SECONDS,
        env=os.environ | alone,
    )
    return made


@pytest.mark.parametrize("check", CHECKS)
def test_by_go(sealed: SealedBroker, client: Path, check: str) -> None:
    command = [str(client), sealed.where(), str(sealed.ca.certificate), check]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=6 * SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def rust_client() -> Path:
    """The program in Rust. No test downloads anything: crates are there, or it is left out."""
    cargo, manifest = shutil.which("cargo"), OTHERS / "rustls" / "Cargo.toml"
    if cargo is None:
        pytest.skip("no cargo here: rustls is the third library")
    command = [cargo, "build", "--quiet", "--locked", "--offline", "--manifest-path", str(manifest)]
    room = ROOT / "build" / "rustls"
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        env=os.environ | {"CARGO_TARGET_DIR": str(room)},
    )
    if done.returncode != 0 and "offline mode" in done.stderr:  # Cargo's word for a crate it lacks.
        pytest.skip(f"no crates of rustls here: cargo fetch --manifest-path {manifest}")
    assert done.returncode == 0, done.stderr
    return room / "debug" / "tls"


@pytest.mark.parametrize("check", RUST_CHECKS)
def test_by_rustls(sealed: SealedBroker, rust_client: Path, check: str) -> None:
    command = [str(rust_client), sealed.where(), str(sealed.ca.certificate), check]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=6 * SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr


def test_each_cipher_of_openssl(sealed: SealedBroker) -> None:
    """Of all that the command knows for 1.2, those are taken that docs/tls.md names."""
    known = run("openssl", "ciphers", "-s", "-tls1_2", "ALL:COMPLEMENTOFALL:@SECLEVEL=0")
    names = [each for each in known.stdout.decode().strip().split(":") if "TLS_" not in each]
    assert len(names) > 50
    taken = set()
    for name in names:
        done = run("openssl", "s_client", "-connect", sealed.where(), "-tls1_2", "-cipher",
                   f"{name}:@SECLEVEL=0", said=b"Q\n")  # fmt: skip
        if b"Cipher is (NONE)" not in done.stdout and b"Cipher is" in done.stdout:
            taken.add(name)
    assert taken == {
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    }


def test_no_early_data(sealed: SealedBroker, tmp_path: Path) -> None:
    """A ticket that is taken, and says that no byte may come before the handshake."""
    ticket, early = tmp_path / "ticket", tmp_path / "early"
    early.write_bytes(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
    call = ("openssl", "s_client", "-connect", sealed.where(), "-tls1_3", "-ign_eof")
    asked = b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    first = run(*call, "-sess_out", str(ticket), said=asked)
    assert b"Max Early Data: 0" in first.stdout, first
    again = run(*call, "-sess_in", str(ticket), "-early_data", str(early), said=asked)
    assert b"Early data was not sent" in again.stdout, again
    assert again.stdout.count(b"HTTP/1.1 200") == 1 and b"Reused, TLSv1.3" in again.stdout
