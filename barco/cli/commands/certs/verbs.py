"""What `barco certs` does: one function for each verb."""

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barco import config as configuration
from barco.addresses import check_address
from barco.cli.commands.certs import authority, files
from barco.cli.commands.certs.authority import Pair
from barco.cli.shared import talk
from barco.config import Config
from barco.errors import CertificateError, ConfigError
from barco.model.access import is_user_name

CA, CLIENTS_CA = "ca", "clients-ca"
"""Two, so that whoever may make clients cannot make brokers."""
AUTHORITIES = (CA, CLIENTS_CA)
_KEEPS = "barco certs renew keeps who it is; --force makes new ones"
_NAME = re.compile(r"[\w.@-]{1,64}", re.ASCII)
_HOST = re.compile(r"(?!-)[A-Za-z0-9_.:-]{1,253}")


@dataclass(frozen=True, slots=True)
class Brokers:
    """For whom certificates are made."""

    uuid: str
    """Of the cluster; empty for a broker that stays alone: nobody asks who it is."""
    hosts: tuple[tuple[str, ...], ...]
    """By ordinal: how that broker is called."""

    def uri(self, ordinal: int) -> str:
        """What only that broker's certificate says."""
        return f"barco:{self.uuid}/{ordinal}" if self.uuid else ""


def init(args: argparse.Namespace) -> int:
    """The authority, and all brokers' files."""
    brokers = _brokers(args)
    names = [CA, *(f"broker-{ordinal}" for ordinal in range(len(brokers.hosts)))]
    files.make_directory(args.dir)
    if not args.force:
        advice = "use another --dir, barco certs renew, or --force for a new authority"
        files.refuse_existing(_paths(args.dir, names), advice)
    title = f"barco cluster {brokers.uuid[:8]}" if brokers.uuid else "barco"
    made = {CA: authority.new_authority(title, args.ca_days)}
    for ordinal in range(len(brokers.hosts)):
        made[f"broker-{ordinal}"] = _broker(made[CA], brokers, ordinal, args.days)
    return _keep(args, made)


def issue(args: argparse.Namespace) -> int:
    """The files of brokers that come later."""
    brokers, known = _brokers(args), _settled(args.dir)
    made = {}
    for ordinal in args.ordinal:
        if ordinal >= len(brokers.hosts):
            raise CertificateError(
                f"broker {ordinal} is none of the {len(brokers.hosts)} that are listed: give the"
                " cluster's file with --config and add it to cluster.brokers there, or give"
                " --broker for each, in their order"
            )
        made[f"broker-{ordinal}"] = _broker(known, brokers, ordinal, args.days)
    return _issued(args, made)


def client(args: argparse.Namespace) -> int:
    """A client's files."""
    if not _NAME.fullmatch(args.name):
        raise CertificateError(f"{args.name!r} is no name: letters, digits, _ . @ -, 64 at most")
    days, made = args.days or files.LEAF_DAYS, {}
    if any(path.exists() for path in _paths(args.dir, [CLIENTS_CA])):
        signer = _settled(args.dir, CLIENTS_CA)
    else:
        files.make_directory(args.dir)
        signer = made[CLIENTS_CA] = authority.new_authority("barco clients", files.CA_DAYS)
    name = f"client-{args.name}"
    if not args.force:
        files.refuse_existing(_paths(args.dir, [name]), _KEEPS)
    return _keep(args, made | {name: authority.issue(signer, args.name, days)})


def renew(args: argparse.Namespace) -> int:
    """The old one stays until the new one is complete; with its key, so that the two belong
    together at each moment."""
    _settle(args.dir)
    names = args.name or _leaves(args.dir)
    if not names:
        raise CertificateError(f"there is no certificate in {args.dir} but the authority's")
    made: dict[str, Pair] = {}
    for name in sorted(names, key=lambda name: name not in AUTHORITIES):  # They sign the others.
        if not _NAME.fullmatch(name):
            raise CertificateError(f"{name!r} is no name of a file here: broker-0, client-x, ca")
        by = _signs(name)
        signer = made.get(by) or _settled(args.dir, by)
        if name in AUTHORITIES:
            days = args.days or files.CA_DAYS
            title = authority.common_name(signer.certificate)
            # Another key would make each certificate that it has signed worthless.
            made[name] = authority.new_authority(title, days, signer.key)
            continue
        old = authority.load_pair(args.dir / name)
        if not authority.signed_by(old.certificate, signer.certificate):
            raise CertificateError(f"{name} is of another authority: it is not renewed here")
        key = authority.new_key() if args.new_key else old.key
        days = args.days or files.LEAF_DAYS
        made[name] = authority.renewed(signer, old.certificate, days, key)
    return _keep(args, made, keys=args.new_key)


def show(args: argparse.Namespace) -> int:
    """What there is; 1 if something has to be done about it."""
    if not args.file:
        _settle(args.dir)
    paths = args.file or sorted(args.dir.glob(f"*{files.CERTIFICATE}"))
    if not paths:
        raise CertificateError(f"there is no certificate in {args.dir}: barco certs init")
    told = [_facts(path, args.within) for path in paths]
    wrong = [f"{each['file']}: {fault}" for each in told for fault in each["faults"]]
    if args.json:
        talk.print_json({"certificates": told})
    else:
        rows = [
            (each["file"], each["subject"], " ".join(each["names"]) or None, each["daysLeft"])
            for each in told
        ]
        talk.print_table(("file", "subject", "names", "days left"), rows)
        for line in wrong:
            talk.say(f"✗ {line}" if talk.speaks_unicode() else f"! {line}")
    return 1 if wrong else 0


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "init": init, "issue": issue, "client": client, "renew": renew, "show": show,
}  # fmt: skip


# --- Whose ------------------------------------------------------------------------------------


def _brokers(args: argparse.Namespace) -> Brokers:
    """As the settings list them, and --broker after those."""
    config = configuration.load(args.config)
    listed = config.cluster.brokers or (() if args.broker else (_alone(config),))
    given = [tuple(host for host in text.split(",") if host) for text in args.broker]
    for host in (host for hosts in given for host in hosts):
        if not _HOST.fullmatch(host):
            raise CertificateError(f"--broker: {host!r} is neither an address nor a host name")
    if not all(given):
        raise CertificateError("--broker needs an address or a name")
    # Names by which clients call any of them; the others are origins of pages.
    anybody = tuple(h for h in config.clients.hosts if h != "*" and "://" not in h)
    hosts = [(each, *anybody) for each in listed]
    if 0 <= config.broker.ordinal < len(hosts) and config.broker.advertise:
        hosts[config.broker.ordinal] += (config.broker.advertise,)
    hosts += given
    return Brokers(
        _uuid(args, config, [each[0] for each in hosts]),
        tuple(tuple(dict.fromkeys(each)) for each in hosts),
    )


def _alone(config: Config) -> str:
    return config.broker.advertise or config.broker.bind


def _uuid(args: argparse.Namespace, config: Config, first: list[str]) -> str:
    """As the brokers will have it: they derive it from addresses where nobody says."""
    if args.cluster is not None:
        if not re.fullmatch("[0-9a-f]{32}", args.cluster):
            raise CertificateError(f"--cluster: {args.cluster!r} is not 32 hexadecimal digits")
        return str(args.cluster)
    if not config.cluster.uuid and len(first) > 1 and not config.cluster.brokers:
        try:
            for host in first:
                check_address(host, "--broker")
        except ConfigError as error:
            raise CertificateError(
                f"{error.detail}: the first of each --broker is its entry in cluster.brokers, from"
                " which the cluster's uuid follows; or give --cluster"
            ) from None
    if len(first) in (0, 1) or config.cluster.brokers:
        return configuration.cluster_uuid(config)
    return configuration.cluster_uuid(config.override("cluster", brokers=tuple(first)))


def _broker(signer: Pair, brokers: Brokers, ordinal: int, days: int | None) -> Pair:
    return authority.issue(
        signer,
        f"barco-{ordinal}",
        days or files.LEAF_DAYS,
        uri=brokers.uri(ordinal),
        hosts=brokers.hosts[ordinal],
        server=True,
    )


# --- Files ------------------------------------------------------------------------------------


def _paths(directory: Path, names: list[str]) -> list[Path]:
    kinds = (files.KEY, files.CERTIFICATE)
    return [directory / f"{name}{kind}" for name in names for kind in kinds]


def _leaves(directory: Path) -> list[str]:
    found = sorted(path.stem for path in directory.glob(f"*{files.CERTIFICATE}"))
    return [name for name in found if name not in AUTHORITIES]


def _signs(name: str) -> str:
    """Whose certificate it is that has signed this one."""
    if name in AUTHORITIES:
        return name
    return CLIENTS_CA if name.startswith("client-") else CA


def _settled(directory: Path, name: str = CA) -> Pair:
    """An authority, in a directory where everything is in its place."""
    _settle(directory)
    if not (directory / f"{name}{files.KEY}").exists():
        raise CertificateError(
            f"there is no {name}{files.KEY} in {directory}: give the --dir where barco certs init"
            " made the authority"
        )
    return authority.load_pair(directory / name)


def _settle(directory: Path) -> None:
    """After a run that was cut off between a new key and its certificate."""
    for new in directory.glob(f"*{files.CERTIFICATE}{files.NEW}"):
        key = new.with_suffix("").with_suffix(files.KEY)
        try:
            fits = authority.fits(authority.load_certificate(new), authority.load_key(key))
        except CertificateError:
            continue  # Not complete, or without a key: it is nothing yet.
        if fits:
            files.place(new)


def _issued(args: argparse.Namespace, made: dict[str, Pair]) -> int:
    if not args.force:
        files.refuse_existing(_paths(args.dir, list(made)), _KEEPS)
    return _keep(args, made)


def _keep(args: argparse.Namespace, made: dict[str, Pair], *, keys: bool = True) -> int:
    """keys: these are new, too."""
    contents: dict[Path, bytes] = {}
    for name, pair in made.items():
        pems = pair.pem(args.dir / name)
        contents |= {path: pem for path, pem in pems.items() if keys or path.suffix != files.KEY}
    files.write(contents)
    if args.json:
        told = [_facts(args.dir / f"{name}{files.CERTIFICATE}", 0) for name in made]
        talk.print_json({"made": [str(path) for path in contents], "certificates": told})
    else:
        for path in contents:
            print(path)
        _advise(args, made)
    return 0


def _advise(args: argparse.Namespace, made: dict[str, Pair]) -> None:
    if args.verb == "init":
        talk.say(
            "copy to each broker ca.crt and its own two files (keys with mode 0600), and keep"
            f" {args.dir / CA}{files.KEY} where no broker is"
        )
    if args.verb == "client" and CLIENTS_CA in made:
        talk.say(
            f"{args.dir / CLIENTS_CA}{files.CERTIFICATE} is a new authority, which no broker knows"
            " before it is in its tls.client_ca; where clients have one already, give its --dir"
        )
    if args.verb == "client" and not is_user_name(args.name):
        talk.say(
            f"{args.name} can be no user's name: this lets in where tls.client_ca asks for it, and"
            " never says who it is (access.certificates)"
        )
    for name, pair in made.items():
        wanted = args.days or files.LEAF_DAYS
        if name not in AUTHORITIES and authority.days_left(pair.certificate) < wanted - 1:
            by = _signs(name)
            talk.say(f"{name} ends with its authority: barco certs renew {by}, then renew")


def _facts(path: Path, within: int) -> dict[str, Any]:
    """What a certificate says, and what is wrong with it."""
    certificate = authority.load_certificate(path)
    above = path.with_name(f"{_signs(path.stem)}{files.CERTIFICATE}")
    signer = authority.load_certificate(above) if above.exists() else None
    left, faults = authority.days_left(certificate), []
    if left <= 0:
        faults.append("it has expired")
    elif left <= within:
        faults.append(f"it ends in {left:.0f} days: barco certs renew {path.stem}")
    if signer is not None and not authority.signed_by(certificate, signer):
        faults.append("the authority beside it has not signed it")
    key = path.with_suffix(files.KEY)
    if key.exists():
        if not files.closed(key):
            faults.append(f"others can use its key: chmod 600 {key}")
        if not authority.fits(certificate, authority.load_key(key)):
            faults.append(f"{key.name} is not its key")
    return {
        "file": str(path),
        "subject": authority.common_name(certificate),
        "names": authority.alternative_names(certificate),
        "authority": authority.is_authority(certificate),
        "from": certificate.not_valid_before_utc.isoformat(),
        "until": certificate.not_valid_after_utc.isoformat(),
        "daysLeft": round(left, 1),
        "serial": f"{certificate.serial_number:x}",
        "key": key.exists(),
        "faults": faults,
    }
