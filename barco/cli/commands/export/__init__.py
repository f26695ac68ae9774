"""`barco export`: a topic into Parquet files or an Iceberg table, exactly once, without Spark."""

import argparse
import asyncio
import importlib
import importlib.util
import sys
import time
from typing import Any

from rich.console import Console

from barco.cli.commands.export.words import DESCRIPTION, EPILOG
from barco.cli.shared import shown, talk

ICEBERG = "iceberg:"


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = talk.command(
        subparsers, "export", help="a topic into Parquet files or an Iceberg table",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("topic", metavar="TOPIC", type=talk.topic)
    parser.add_argument("--to", required=True, metavar="DIR|iceberg:NAMESPACE.TABLE",
                        help="a directory for Parquet files, or a table")  # fmt: skip
    parser.add_argument("--catalog", metavar="URI", type=_catalog,
                        help="of Iceberg: http://HOST:PORT (REST), or sqlite:///FILE")  # fmt: skip
    parser.add_argument("--catalog-token-file", metavar="FILE", type=_catalog_token,
                        default=shown.catalog_token_default(), help="a file with the token that a"
                        f" REST catalog asks for (default: ${shown.CATALOG_VARIABLE})")  # fmt: skip
    parser.add_argument("--warehouse", metavar="NAME|DIR|URI", default="",
                        help="a REST catalog's name for it; else where a new table lies (default:"
                        " the catalog's)")  # fmt: skip
    parser.add_argument("--columns", metavar="none|auto|NAME:TYPE,...", default="none",
                        help="make columns of JSON (default: none)")  # fmt: skip
    parser.add_argument("--from", metavar="PLACE", dest="start", type=talk.place,
                        default="earliest", help="where the first run begins: earliest (default),"
                        " timestamp:MICROSECONDS, or a time")  # fmt: skip
    parser.add_argument("--follow", action="store_true", help="go on with new events, for ever")
    parser.add_argument("--every", metavar="SECONDS", type=talk.pause(1), default=60.0,
                        help="with --follow: commit at least as often (default: 60)")  # fmt: skip
    parser.add_argument("--batch-mib", metavar="MIB", type=int, default=64,
                        help="events of a file, in memory (default: 64)")  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(args: argparse.Namespace) -> int:
    """Check, export, sum up."""
    iceberg = str(args.to).startswith(ICEBERG)
    wrong = _wrong(args, iceberg) or _missing(iceberg)
    if wrong:
        return talk.fail(wrong, 2)
    began = time.monotonic()
    # Only now: pyarrow takes a while, and barco itself does not need it.
    job = importlib.import_module("barco.tables.job")
    sink = _sink(args, iceberg)
    try:
        shape = importlib.import_module("barco.tables.shape").Shape(args.columns, sink.kind())
        options = job.Options(
            topic=args.topic,
            batch_bytes=args.batch_mib << 20,
            follow=args.follow,
            every_s=args.every,
            start=args.start,
        )
        work = job.Export(talk.access(args), options, sink, shape, _teller(args, began))
        try:
            asyncio.run(work.run())
        except KeyboardInterrupt:
            if not args.follow:
                raise
        _summarize(args, work.told, time.monotonic() - began)
    finally:
        sink.close()
    return 0


def _wrong(args: argparse.Namespace, iceberg: bool) -> str:
    if iceberg and not args.catalog:
        return "an Iceberg table is in a catalog: --catalog http://HOST:PORT, or sqlite:///FILE"
    if not iceberg and (args.catalog or args.warehouse):
        return "--catalog and --warehouse are for --to iceberg:NAMESPACE.TABLE"
    if not 1 <= args.batch_mib <= 1024:
        return "--batch-mib is 1 to 1024"
    if args.start == "latest":
        return "--from latest: what comes before the first commit would be lost if that one failed"
    return ""


def _missing(iceberg: bool) -> str:
    for module in ("pyarrow", *(["pyiceberg"] if iceberg else [])):
        if importlib.util.find_spec(module) is None:
            return f"the package {module} is missing: pip install 'barco[export]'"
    return ""


def _sink(args: argparse.Namespace, iceberg: bool) -> Any:
    if not iceberg:
        return importlib.import_module("barco.tables.folder").Folder(args.to, args.topic)
    module = importlib.import_module("barco.tables.iceberg")
    name = str(args.to).removeprefix(ICEBERG)
    return module.Iceberg(name, args.catalog, args.warehouse, args.catalog_token_file)


def _catalog(uri: str) -> str:
    """For argparse: where a catalog is. What is refused is not repeated: it may have a secret."""
    kind, found, rest = uri.partition("://")
    if not found:
        raise argparse.ArgumentTypeError("a catalog is http://HOST:PORT (REST) or sqlite:///FILE")
    if kind in ("http", "https") and ("@" in rest or "?" in rest):
        raise argparse.ArgumentTypeError(
            "an address of a catalog has no name, password or token in it: --catalog-token-file"
        )
    return uri


def _catalog_token(path: str) -> str:
    """For argparse: a file that is there; it is read with each request, so its path counts."""
    if path:
        shown.warn_readable(path)
    return path


def _teller(args: argparse.Namespace, began: float) -> Any:
    console = Console(stderr=True)

    def tell(told: Any, where: str) -> None:
        if not args.quiet and (args.follow or console.is_terminal):
            rate = told.events / max(time.monotonic() - began, 1e-9)
            print(f"{told.events:,} events, {rate:,.0f} events/s: {where}", file=sys.stderr)

    return tell


def _summarize(args: argparse.Namespace, told: Any, elapsed: float) -> None:
    # Warnings: they are told with --quiet and --json too.
    for words in told.gone:
        print(f"warning: retention was faster: {words}", file=sys.stderr)
    if told.kept_whole:
        words = f"{told.kept_whole:,} events do not fit the columns: they are whole in _value"
        print(f"warning: {words}", file=sys.stderr)
    if told.not_text:
        print(f'warning: {told.not_text:,} keys or values are no UTF-8: {{"base64":"..."}}',
              file=sys.stderr)  # fmt: skip
    if args.json:
        talk.print_json(
            {
                "topic": args.topic,
                "to": args.to,
                "events": told.events,
                "commits": told.commits,
                "keptWhole": told.kept_whole,
                "notText": told.not_text,
                "gone": told.gone,
                "seconds": round(elapsed, 3),
            }
        )
    elif not args.quiet:
        commits = f"{told.commits} commit{'s' if told.commits != 1 else ''}"
        print(f"{told.events:,} events of {args.topic} exported to {args.to} in {elapsed:.1f} s,"
              f" {commits}", file=sys.stderr)  # fmt: skip
