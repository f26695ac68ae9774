"""`barco serve`: run a broker in the foreground."""

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

import barco
from barco import config as configuration
from barco import limits, log
from barco.addresses import bracketed
from barco.cli.shared.in_kubernetes import begin
from barco.cli.shared.known import known_disk, others_went_on
from barco.config import Config, resolved
from barco.errors import ConfigError
from barco.model.options import ENGINES
from barco.sections import PORT_NAMES, PortsSection
from barco.supervisor.broker import run as run_broker
from barco.supervisor.files.restored import check_beside, forget, is_restored
from barco.supervisor.processes import ReadyBroker
from barco.supervisor.sources.plan import ServePlan
from barco.supervisor.sources.reload import heed_early

DESCRIPTION = """\
Run a broker in the foreground: a supervisor and one worker process for each core.

Without a configuration file the broker runs in developer mode: a ring of one broker, data in
./barco-data (or $XDG_STATE_HOME/barco), every listener on 127.0.0.1. Nothing has to be set up; an
empty data directory is formatted at the first start.

Settings come from three places, the later wins: the file (--config), the environment
(BARCO_SECTION_KEY, such as BARCO_LIMITS_MEMORY_BYTES), and the options below.

SIGTERM or SIGINT (Ctrl-C) drain: requests under way are answered, logs are sealed, exit 0. After
25 seconds, or at a second signal, the workers are killed; no acknowledged event is lost by that.

SIGHUP: the same three places are read again, and taken up or refused as a whole, with one line in
the log. Brokers that cluster.brokers lists now become the cluster's target, as barco scale does it;
the files of [tls] are read again, for connections that come from then on; what else has changed is
named, and counts at the next start.
"""

EPILOG = """\
Examples:
  barco serve --dev
      developer mode, on ports 9250-9253 and 9300 up
  barco serve --data-dir /tmp/x --workers 2 --ports-from 19250
      a second broker on the same machine
  barco serve --ports-from 0 --json
      free ports; one line of JSON on stdout says which, when the broker is ready
  barco serve --config /etc/barco/barco.toml
      as systemd starts it

Exit codes:
  0    stopped as asked, everything drained
  2    wrong usage
  78   the configuration, the machine or the data directory was refused
  1    anything else: a port or the directory in use, a worker that keeps dying
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "serve",
        help="run a broker",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_common(parser)
    parser.add_argument(
        "--dev", action="store_true", help="developer mode (the default without --config)"
    )
    parser.add_argument(
        "--bind", metavar="ADDRESS", help="listen on this address (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--advertise",
        metavar="HOST",
        help="tell clients this address or host name, say behind NAT (default: that of --bind)",
    )
    parser.add_argument(
        "--ports-from",
        metavar="N",
        type=_number(0, limits.PORT_MAX - limits.SHARD_PORTS_FROM - limits.WORKERS_MAX),
        help="discovery on N, produce N+1, consume N+2, metrics N+3, shard endpoints from N+50;"
        " 0: free ports (default: 9250, shards from 9300)",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        help="how workers wait for the kernel; epoll is the fallback (default: auto)",
    )
    parser.add_argument(
        "--insecure-allow-open",
        action="store_true",
        help="allow an address that other machines reach, without TLS and authentication:"
        " anyone can read and write everything",
    )
    parser.add_argument(
        "--kubernetes",
        metavar="NAMESPACE[/POD]",
        help="this broker is a pod of a StatefulSet, which says its ordinal, where the others are,"
        " and how many there shall be (pip install 'barco[kubernetes]'; default of POD: the host"
        " name)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help='print one line on stdout when ready: {"event":"ready","pid":…,"ports":{…},…}',
    )


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options that `serve` and `format` share."""
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings, in TOML")
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        type=Path,
        help="where the log is (default: broker.data_dir, or $STATE_DIRECTORY,"
        " $XDG_STATE_HOME/barco, ./barco-data)",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=_number(1, limits.WORKERS_MAX),
        help="ranges that this broker leads, each by a process; another number than the last is"
        " carried out while it serves (default: as it has; at first one for each core)",
    )


def run(args: argparse.Namespace) -> int:
    """Run a broker until it is told to stop."""
    if args.dev and args.config:
        raise ConfigError("--dev needs no configuration, and takes none: leave out one of the two")
    log.setup(sys.stderr)
    heed_early()
    config, data_dir = _overridden(args)
    pod = None
    if args.kubernetes is not None:
        pod = begin(args.kubernetes, config, data_dir, insecure_allow_open=args.insecure_allow_open)

    def read() -> Config:
        found = _overridden(args)[0]
        return found if pod is None else pod.placed(found)

    config = read()
    log.follow(config.log.level, config.log.format)
    if is_restored(data_dir):
        check_beside(data_dir, others_went_on(resolved(config)))
    plan = ServePlan(
        config=config,
        data_dir=data_dir,
        dev=args.config is None,
        insecure_allow_open=args.insecure_allow_open,
        known_disk=known_disk,
        restored=is_restored(data_dir),
        read=read,
        source=None if pod is None else pod.follow,
    )
    return run_broker(plan, lambda ready: _announce(ready, args.json))


def _overridden(args: argparse.Namespace) -> tuple[Config, Path]:
    """As the common options ask, and then those of `serve`."""
    config, data_dir = settings(args)
    if args.bind is not None:
        config = config.override("broker", bind=args.bind)
    if args.advertise is not None:
        config = config.override("broker", advertise=args.advertise)
    if args.engine is not None:
        config = config.override("broker", engine=args.engine)
    if args.ports_from is not None:
        config = config.override("ports", **_ports_from(args.ports_from))
    return config, data_dir


def settings(args: argparse.Namespace) -> tuple[Config, Path]:
    """The configuration and the data directory that the common options ask for."""
    config = configuration.load(args.config)
    if args.workers is not None:
        config = config.override("broker", workers=args.workers)
    if args.data_dir is not None:
        return config, args.data_dir
    if config.broker.data_dir:
        return config, Path(config.broker.data_dir)
    return config, configuration.data_dir_default()


def _ports_from(base: int) -> dict[str, int]:
    if base == 0:
        return dict.fromkeys(PORT_NAMES, 0)
    usual = PortsSection()
    return {name: base + getattr(usual, name) - usual.discovery for name in PORT_NAMES}


def _number(low: int, high: int) -> Any:
    def number(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else -1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low} to {high}")
        return value

    return number


def _announce(ready: ReadyBroker, as_json: bool) -> None:
    """A banner for a person at the terminal, a log line otherwise; one line for scripts."""
    forget(Path(ready.data_dir))
    if as_json:
        print(json.dumps({"event": "ready"} | asdict(ready)), flush=True)
    if not sys.stderr.isatty():
        logging.getLogger("barco.supervisor").info("broker ready", extra=asdict(ready))
        return
    host = bracketed(ready.advertise)
    scheme = "https" if ready.tls else "http"
    rows = [(name, f"{scheme}://{host}:{port}") for name, port in ready.ports.items()]
    rows += [(f"shard {worker}", f"{scheme}://{at}") for worker, at in enumerate(ready.shards)]
    rows += [
        ("data", ready.data_dir),
        ("engine", ", ".join(sorted(set(ready.engines)))),
        ("stop", f"Ctrl-C, or kill {ready.pid}"),
    ]
    banner = f"barco {barco.__version__} is ready, {len(ready.workers)} worker(s)\n"
    banner += "".join(f"  {name:<10} {value}\n" for name, value in rows)
    sys.stderr.write(banner)
    sys.stderr.flush()
