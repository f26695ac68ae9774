"""Keys and certificates as values: what a cluster's authority signs, and what is in one."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from barco.cli.commands.certs import files
from barco.errors import CertificateError

SKEW = timedelta(hours=1)
"""A certificate holds since then: clocks of brokers differ."""

Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: Key

    def pem(self, stem: Path) -> dict[Path, bytes]:
        """As files of that name, the key first."""
        return {
            stem.with_name(stem.name + files.KEY): self.key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            stem.with_name(stem.name + files.CERTIFICATE): self.certificate.public_bytes(
                serialization.Encoding.PEM
            ),
        }


def new_key() -> Key:
    """A key of its own."""
    return ec.generate_private_key(ec.SECP256R1())


def new_authority(name: str, days: int, key: Key | None = None) -> Pair:
    """One that signs, and is signed by itself. key: of one that is renewed."""
    key = key or new_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = _usage(signs=True)
    builder = _builder(subject, subject, key, days).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    return Pair(builder.add_extension(usage, critical=True).sign(key, hashes.SHA256()), key)


def issue(
    authority: Pair, name: str, days: int, *, uri: str = "", hosts: tuple[str, ...] = (),
    server: bool = False, key: Key | None = None,
) -> Pair:  # fmt: skip
    """A certificate for one who serves and calls, or (not `server`) only calls."""
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri)] if uri else []
    names += [_host(host) for host in hosts]
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH] if server else []
    return _signed(
        authority,
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
        days,
        x509.SubjectAlternativeName(names) if names else None,
        x509.ExtendedKeyUsage([*purposes, ExtendedKeyUsageOID.CLIENT_AUTH]),
        key or new_key(),
    )


def renewed(authority: Pair, old: x509.Certificate, days: int, key: Key) -> Pair:
    """One that says what the old one says, for longer."""
    try:
        names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = None
    purposes = old.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    return _signed(authority, old.subject, days, names, purposes, key)


def load_certificate(path: Path) -> x509.Certificate:
    """The first one of a file."""
    try:
        return x509.load_pem_x509_certificate(files.read(path))
    except ValueError as error:
        raise CertificateError(f"{path} is no certificate in PEM: {error}") from None


def load_key(path: Path) -> Key:
    """A key that this command has made."""
    try:
        key = serialization.load_pem_private_key(files.read(path), None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{path} is no key in PEM that can be used: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{path} is no key that barco certs has made: it is not ECDSA")
    return key


def load_pair(stem: Path) -> Pair:
    """Both files. CertificateError: they do not belong together."""
    key_path = stem.with_name(stem.name + files.KEY)
    pair = Pair(load_certificate(stem.with_name(stem.name + files.CERTIFICATE)), load_key(key_path))
    if not fits(pair.certificate, pair.key):
        raise CertificateError(f"{key_path} is not the key of the certificate beside it")
    return pair


def fits(certificate: x509.Certificate, key: Key) -> bool:
    """Whether it is that certificate's key."""
    return certificate.public_key() == key.public_key()


def signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether the authority has signed it, with the key that it has now."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def common_name(certificate: x509.Certificate) -> str:
    """Who it is, as people read it."""
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def alternative_names(certificate: x509.Certificate) -> list[str]:
    """Names and addresses, each with its kind, as openssl writes them."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    kinds: dict[type, str] = {
        x509.DNSName: "DNS",
        x509.IPAddress: "IP",
        x509.UniformResourceIdentifier: "URI",
    }
    return [f"{kinds.get(type(name), 'other')}:{name.value}" for name in found]


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def days_left(certificate: x509.Certificate, now: datetime | None = None) -> float:
    """Until it ends; below 0 when it has."""
    left = certificate.not_valid_after_utc - (now or datetime.now(UTC))
    return left / timedelta(days=1)


def _signed(
    authority: Pair, subject: x509.Name, days: int, names: x509.SubjectAlternativeName | None,
    purposes: x509.ExtendedKeyUsage, key: Key,
) -> Pair:  # fmt: skip
    issuer = authority.certificate
    if days_left(issuer) <= 0:
        raise CertificateError("the authority has expired: barco certs renew ca")
    builder = _builder(subject, issuer.subject, key, days, issuer.not_valid_after_utc)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    builder = builder.add_extension(purposes, critical=False)
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(
        cast(ec.EllipticCurvePublicKey, issuer.public_key())
    )
    builder = builder.add_extension(by, critical=False)
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return Pair(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Key, days: int, end: datetime | None = None
) -> x509.CertificateBuilder:
    """What all have. end: none outlives who signs it."""
    now = datetime.now(UTC).replace(microsecond=0)
    wanted = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(min(wanted, end) if end else wanted)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
