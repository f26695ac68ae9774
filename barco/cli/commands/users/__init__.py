"""`barco users`: who may do what. Tokens are made here, shown once, and sent nowhere."""

import argparse
from typing import Any

import barco
from barco.cli.commands import serve
from barco.cli.commands.users import words
from barco.cli.shared import talk
from barco.model.access import QUOTAS, VERBS, hash_of
from barco.supervisor.files import first_users

DESCRIPTION = f"""\
Say who may do what, where access.required is on. A user has a token, which is made here and printed
once on standard output: keep it in a file of mode 0600. Brokers get its SHA-256 and nothing else.

A grant is VERB, VERB:TOPICS or VERB:TOPICS:GROUPS; patterns are names, or beginnings and a *.
Verbs: {", ".join(VERBS)}.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Examples:
  barco users first --data-dir DIR root > root.token     before the first start: may do everything
  barco users add sensors produce:trips.* > sensors.token
  barco users add billing consume:trips.*:billing-* > billing.token
  barco users grant billing consume:trips.*:billing-* produce:bills
  barco users rotate sensors > sensors.token              the old token is nobody's from now on
  barco users quota sensors --requests-per-second 500 --bytes-per-second 4000000
  barco users quota sensors --connections 20 --topics 5
  barco users list
  barco users remove sensors

{talk.EXIT_CODES}"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "users", help="who may do what", description=DESCRIPTION,
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    actions = parser.add_subparsers(
        title="actions",
        dest="action",
        metavar="first|add|quota|grant|rotate|list|remove",
        required=True,
    )
    first = actions.add_parser(
        "first",
        help="a user who may do everything, in a file that brokers read at their start",
        description="Until somebody has been added over HTTP the users of that file count. In a"
        " cluster copy it to each broker, mode 0600.",
        allow_abbrev=False,
    )
    serve.add_common(first)
    first.add_argument("user", metavar="USER", type=words.name)
    add = _action(actions, "add", "a new user; prints the token")
    add.add_argument("grants", metavar="GRANT", nargs="*", type=words.grant)
    _add_quotas(add)
    quota = _action(actions, "quota", "how much a user may have")
    _add_quotas(quota)
    grant = _action(actions, "grant", "give a user these grants instead of those it has")
    grant.add_argument("grants", metavar="GRANT", nargs="*", type=words.grant)
    rotate = _action(actions, "rotate", "another token for a user; prints it")
    rotate.add_argument(
        "--keep", action="store_true", help="the last token goes on as well, until the next rotate"
    )
    _action(actions, "list", "all users and their grants", named=False)
    _action(actions, "remove", "remove a user")


def _add_quotas(parser: argparse.ArgumentParser) -> None:
    for option, what in words.QUOTA_OPTIONS.values():
        parser.add_argument(
            f"--{option}", metavar="N", type=words.amount, help=f"{what} (0: without end)"
        )


def _action(actions: Any, name: str, text: str, *, named: bool = True) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=text.capitalize() + ".", allow_abbrev=False
    )
    if named:
        parser.add_argument("user", metavar="USER", type=words.name)
    talk.add_endpoint(parser)
    parser.add_argument("--json", action="store_true", help="print the broker's answer as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Do one of the actions."""
    if args.action == "first":
        return _first(args)
    actions = {
        "add": _add, "quota": _quota, "grant": _grant_it, "rotate": _rotate, "list": _list,
        "remove": _remove,
    }  # fmt: skip
    with barco.Admin(talk.access(args)) as admin:
        return actions[args.action](admin, args)


def _first(args: argparse.Namespace) -> int:
    _, data_dir = serve.settings(args)
    path = data_dir / first_users.NAME
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = words.new_token()
    first_users.add(path, args.user, hash_of(token).hex())
    print(token)
    talk.say(f"user {args.user} is in {path}; in a cluster copy it to each broker (mode 0600)")
    return 0


def _show(args: argparse.Namespace, answer: Any, token: str, said: str) -> int:
    """The token alone is what stdout has, so that it can go into a file."""
    if args.json:
        talk.print_json(answer | ({"token": token} if token else {}))
        return 0
    if token:
        print(token)
    talk.say(said)
    return 0


def _add(admin: "barco.Admin", args: argparse.Namespace) -> int:
    if any(each["name"] == args.user for each in admin.users()):
        return talk.fail(f"there is a user {args.user}: see barco users grant, and rotate")
    token = words.new_token()
    answer = admin.set_user(
        args.user,
        token=token,
        grants=args.grants,
        **words.quotas(args),
    )
    return _show(args, answer, token, f"user {args.user} is there; this token is shown once")


def _quota(admin: "barco.Admin", args: argparse.Namespace) -> int:
    quotas = words.quotas(args)
    if not quotas:
        options = [f"--{option}" for option, _ in words.QUOTA_OPTIONS.values()]
        return talk.fail(f"give one or more of {', '.join(options)}")
    answer = admin.set_user(args.user, **quotas)
    return _show(args, answer, "", f"user {args.user} has this quota from now on")


def _grant_it(admin: "barco.Admin", args: argparse.Namespace) -> int:
    answer = admin.set_user(args.user, grants=args.grants)
    return _show(args, answer, "", f"user {args.user} may: {', '.join(args.grants) or 'nothing'}")


def _rotate(admin: "barco.Admin", args: argparse.Namespace) -> int:
    token = words.new_token()
    answer = admin.set_user(args.user, token=token, keep=args.keep)
    return _show(args, answer, token, f"user {args.user} has this token from now on")


def _list(admin: "barco.Admin", args: argparse.Namespace) -> int:
    users = admin.users()
    if args.json:
        talk.print_json(users)
        return 0
    rows = [
        (
            each["name"],
            each["tokens"],
            *(each.get(quota) or "-" for quota in QUOTAS),
            " ".join(each["grants"]),
        )
        for each in users
    ]
    quotas = ("requests/s", "bytes/s", "connections", "topics", "groups", "staged bytes")
    talk.print_table(("user", "tokens", *quotas, "may"), rows)
    return 0


def _remove(admin: "barco.Admin", args: argparse.Namespace) -> int:
    admin.remove_user(args.user)
    return _show(args, {"name": args.user, "removed": True}, "", f"user {args.user} is removed")
