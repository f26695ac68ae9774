"""Certificates for tests, made by OpenSSL's own command: an authority, and what it signs."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
LOCAL = "subjectAltName=DNS:localhost,IP:127.0.0.1\n"
BOTH = "serverAuth,clientAuth"


@dataclass(frozen=True)
class Files:
    """Paths of a certificate and of its key."""

    certificate: Path
    key: Path


def _openssl(*arguments: object) -> None:
    command = ["openssl", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def authority(directory: Path, name: str = "ca") -> Files:
    """One that signs others."""
    made = Files(directory / f"{name}.crt", directory / f"{name}.key")
    extension = ("-addext", "basicConstraints=critical,CA:TRUE", "-days", 100)
    into = ("-subj", f"/CN={name}", "-keyout", made.key, "-out", made.certificate)
    _openssl("req", "-x509", *CURVE, *extension, *into)
    return made


def broker(
    directory: Path, by: Files, name: str, uri: str, *, days: int = 90, use: str = BOTH
) -> Files:
    """One that `by` has signed, for a broker that others know by this URI."""
    lines = f"subjectAltName=URI:{uri}\nextendedKeyUsage={use}\n"
    return issued(directory, by, name, days=days, says=lines)


def issued(
    directory: Path, by: Files, name: str, *, days: int = 90, says: str = LOCAL, subject: str = ""
) -> Files:
    """One that `by` has signed, for localhost and 127.0.0.1, or with these extensions. subject: as
    openssl writes it, where that is not the name alone."""
    made = Files(directory / f"{name}.crt", directory / f"{name}.key")
    wanted, extensions = directory / f"{name}.csr", directory / f"{name}.ext"
    extensions.write_text(says)
    _openssl("req", *CURVE, "-subj", subject or f"/CN={name}", "-keyout", made.key, "-out", wanted)
    signer = ("-CA", by.certificate, "-CAkey", by.key, "-CAcreateserial", "-days", days)
    into = ("-extfile", extensions, "-out", made.certificate)
    _openssl("x509", "-req", "-in", wanted, *signer, *into)
    return made
