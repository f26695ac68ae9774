"""Certificates with their keys: a handshake with oneself proves that they can be used, and tells
for how long. Python's own ssl does it, so that no broker needs a library for it."""

import ssl
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

from barco.cli.commands.certs import files
from barco.cli.commands.check.finding import FAULT, GOOD, WARNING, Finding
from barco.config import Config
from barco.errors import BarcoError, ConfigError
from barco.supervisor.files.certificate import read_certificate, read_mutual
from barco.supervisor.files.credentials import CREDENTIALS, file_named
from barco.supervisor.machine import advertised_by

AREA = "certificate"
EXPIRED = 10
"""X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""
NOT_SERVING = ("ca", "clients-ca", "client-*")
"""Of what barco certs makes: nobody is to be served with these."""
STEPS_MAX = 10
"""Of each side in a handshake; TLS 1.3 has two."""


def look(named: Sequence[Path] | None, config: Path | None) -> Iterator[Finding]:
    """Those that are named, or those that lie where a broker's do."""
    if named is not None:
        found = list(named)
    else:
        beside = [] if config is None else [config.parent]
        folders = dict.fromkeys([*beside, CREDENTIALS])
        found = [path for folder in folders for path in _pairs(folder)]
    for path in found:
        yield one(path)


def configured(config: Config, now: datetime | None = None) -> Iterator[Finding]:
    """Those that the settings name: what a broker would say of them at its start."""
    for named, read in (
        ("tls.certificate", read_certificate),
        ("cluster.certificate", read_mutual),
    ):
        try:
            found = read(config)
        except ConfigError as error:
            yield Finding(AREA, FAULT, error.detail)
            continue
        if found is not None:
            until = datetime.fromtimestamp(found.until_s, UTC)
            yield _lasts(named, (until - (now or datetime.now(UTC))).days, "")
    yield from _named(config)


def one(path: Path, now: datetime | None = None) -> Finding:
    """A certificate whose key is beside it."""
    key = path.with_suffix(files.KEY)
    try:
        until = _until(path, key)
    except ssl.SSLCertVerificationError as error:
        ended = error.verify_code == EXPIRED
        advice = f"barco certs renew {path.stem}" if ended else "it is not a broker's, or not yet"
        return Finding(AREA, FAULT, f"{path}: {error.verify_message}: {advice}")
    except BarcoError as error:
        return Finding(AREA, FAULT, error.detail)
    except ssl.SSLError as error:
        why = "it is not the key of that certificate" if "MISMATCH" in str(error.reason) else error
        return Finding(AREA, FAULT, f"{path} with {key.name}: {why}")
    except OSError as error:
        return Finding(AREA, FAULT, f"cannot read {key}: {error.strerror}")
    if not files.closed(key):
        return Finding(AREA, FAULT, f"{key} can be used by others: chmod 600 {key}")
    days = (until - (now or datetime.now(UTC))).days
    return _lasts(str(path), days, path.stem)


def _named(config: Config) -> Iterator[Finding]:
    """Whether clients find in the certificate what they are told to call."""
    tls = config.tls
    try:
        host = advertised_by(config)
        names = _names(_shown(file_named(tls.certificate), file_named(tls.key)))
    except (BarcoError, OSError):  # There is none, or what is wrong with it was said above.
        return
    if host not in names and f"*.{host.partition('.')[2]}" not in names:
        words = (
            f"tls.certificate is for {', '.join(names) or 'nobody'}, and clients are told to call"
            f" {host}: they would refuse it; is it another broker's?"
        )
        yield Finding(AREA, WARNING, words)


def _names(shown: Mapping[str, Any]) -> list[str]:
    """Names and addresses."""
    kinds = ("DNS", "IP Address")
    return [str(value) for kind, value in shown.get("subjectAltName", ()) if kind in kinds]


def _lasts(what: str, days: int, name: str) -> Finding:
    if days < files.WARN_DAYS:
        return Finding(
            AREA, WARNING, f"{what} ends in {days} days: barco certs renew {name}".rstrip()
        )
    return Finding(AREA, GOOD, f"{what} for {days} days")


def _pairs(folder: Path) -> list[Path]:
    try:
        found = sorted(folder.glob(f"*{files.CERTIFICATE}"))
        found = [each for each in found if each.with_suffix(files.KEY).exists()]
        return [path for path in found if not any(map(PurePath(path.stem).match, NOT_SERVING))]
    except OSError:  # Not ours to look into.
        return []


def _until(certificate: Path, key: Path) -> datetime:
    """When it ends; raises as `_shown` does."""
    return datetime.fromtimestamp(
        ssl.cert_time_to_seconds(str(_shown(certificate, key)["notAfter"])), UTC
    )


def _shown(certificate: Path, key: Path) -> Mapping[str, Any]:
    """What is in it, as Python's ssl has it; ssl.SSLError if the key does not fit or it is not
    valid now, OSError if one of the two cannot be read."""
    files.read(certificate)  # Of bounded size.
    here = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    here.load_cert_chain(certificate, key)
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    there.check_hostname = False
    there.load_verify_locations(certificate)
    # It is believed for this handshake, whoever has signed it.
    there.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_here, to_there = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = here.wrap_bio(to_here, to_there, server_side=True)
    client = there.wrap_bio(to_there, to_here)
    for _ in range(STEPS_MAX):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client.getpeercert() or {}
