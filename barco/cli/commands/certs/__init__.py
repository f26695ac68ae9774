"""`barco certs`: a certificate authority for one cluster, and the files of its brokers."""

import argparse
import importlib
from pathlib import Path
from typing import Any

from barco.cli.commands.certs import files
from barco.cli.shared import talk

DESCRIPTION = """\
Make the certificates of a cluster, where there is no authority that does: one for the cluster, and
a certificate with its key for each broker and each client. Needs the package cryptography (pip
install 'barco[certs]'); brokers and clients do not, so this may run on another machine than theirs.

  ca.crt, ca.key                     the authority; brokers need ca.crt, and nobody needs ca.key but
                                     this command: keep it away from the brokers
  broker-N.crt, broker-N.key         of broker N: for its clients and for the other brokers
  clients-ca.crt, clients-ca.key     the authority of clients, made with the first of them: who may
                                     make clients cannot make brokers
  client-NAME.crt, client-NAME.key   of a client, whom brokers know by that name

Keys are ECDSA P-256 and have mode 0600. A broker's certificate names the cluster and the broker
(URI barco:UUID/N), its entry in cluster.brokers, and the names in clients.hosts.

Nothing that is there is written over unless you say so (renew, or --force).
"""

EPILOG = """\
Examples:
  barco certs init --config barco.toml --dir certs
      the authority and all brokers' files, by cluster.brokers
  barco certs init --dir certs --broker 10.0.0.1,a.example --broker 10.0.0.2 --broker 10.0.0.3
      the same without a file; --broker: a broker's addresses and names, by ordinal
  barco certs issue 3 --config barco.toml --dir certs
      for a broker that comes later
  barco certs client dashboards --dir certs
  barco certs renew --dir certs
      all but the authority's, with the keys that they have; then systemctl reload barco
  barco certs show --dir certs
      what there is, for how long

Exit codes:
  0    done; show: all is well
  2    wrong usage
  78   the configuration was refused
  1    anything else; show: a certificate ends within 30 days, or something is wrong with it
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "certs",
        help="make the certificates of a cluster",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(title="what to do", dest="verb", metavar="VERB", required=True)
    init = _verb(verbs, "init", "an authority, and the files of all brokers")
    _add_brokers(init)
    _add_days(init)
    init.add_argument("--ca-days", metavar="DAYS", type=_days, default=files.CA_DAYS,
                      help="how long the authority lasts (default: %(default)d)")  # fmt: skip
    issue = _verb(verbs, "issue", "the files of brokers that come later")
    issue.add_argument("ordinal", metavar="ORDINAL", nargs="+", type=talk.ordinal)
    _add_brokers(issue)
    _add_days(issue)
    client = _verb(verbs, "client", "a client's files")
    client.add_argument("name", metavar="NAME", help="letters, digits and _ . @ -, 64 at most")
    _add_days(client)
    renew = _verb(verbs, "renew", "certificates that last longer, in the place of those there are")
    renew.add_argument(
        "name", metavar="NAME", nargs="*", help="such as broker-0 or ca (default: no authority)"
    )
    renew.add_argument("--new-key", action="store_true", help="with new keys, too")
    _add_days(renew)
    show = _verb(verbs, "show", "what certificates there are, and for how long")
    show.add_argument("file", metavar="FILE", nargs="*", type=Path,
                      help="certificates (default: all of --dir)")  # fmt: skip
    show.add_argument("--within", metavar="DAYS", type=int, default=files.WARN_DAYS,
                      help="exit 1 if one ends so soon (default: %(default)d)")  # fmt: skip
    for made in (init, issue, client):
        made.add_argument("--force", action="store_true", help="write over what is there")


def _verb(verbs: Any, name: str, help: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=help, allow_abbrev=False)
    parser.add_argument("--dir", metavar="DIR", type=Path, default=Path("certs"),
                        help="where the files are (default: %(default)s)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print what was found or made as JSON")
    return parser


def _add_brokers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path,
                        help="a broker's settings: cluster.brokers, cluster.uuid")  # fmt: skip
    parser.add_argument("--broker", metavar="HOST[,HOST…]", action="append", default=[],
                        help="addresses and names of one more broker")  # fmt: skip
    parser.add_argument(
        "--cluster",
        metavar="UUID",
        help="32 hexadecimal digits (default: as the settings give it)",
    )


def _add_days(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days",
        metavar="DAYS",
        type=_days,
        help=f"how long a certificate lasts (default: {files.LEAF_DAYS}; an authority that is"
        f" renewed: {files.CA_DAYS})",
    )


def _days(text: str) -> int:
    days = talk.count(text)
    if days > files.CA_DAYS_MAX:
        raise argparse.ArgumentTypeError(f"{days} days are more than {files.CA_DAYS_MAX}")
    return days


def run(args: argparse.Namespace) -> int:
    """Do what the verb says."""
    try:
        verbs: Any = importlib.import_module("barco.cli.commands.certs.verbs")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "cryptography":
            raise
        return talk.fail(
            "the package cryptography is missing: pip install 'barco[certs]'"
            " (Debian's package of barco has it)"
        )
    code: int = verbs.VERBS[args.verb](args)
    return code
