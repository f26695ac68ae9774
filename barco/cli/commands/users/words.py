"""What users say of users: names, grants; and the tokens that are made for them."""

import argparse
import secrets
from typing import Any

from barco.errors import RequestError
from barco.limits import QUOTA_MAX
from barco.model.access import TOKEN_PREFIX, Grant, User

TOKEN_BYTES = 32

QUOTA_OPTIONS = {
    "requests_per_second": ("requests-per-second", "at each worker; more is answered 429"),
    "bytes_per_second": (
        "bytes-per-second",
        "of bodies, sent and answered, at each worker; more is answered 429",
    ),
    "connections": ("connections", "at each worker; more is answered 429"),
    "topics": ("topics", "that this user makes; more is answered 403, and a produce makes none"),
    "groups": ("groups", "that this user begins; more is answered 403"),
    "staged_bytes": (
        "staged-bytes",
        "not committed, at each process that holds a shard; more is answered 429",
    ),
}
"""By the parameter of `Admin.set_user`: the option of the command, and what it says."""


def name(text: str) -> str:
    """For argparse: a user's name."""
    return _checked(lambda: User.checked(text, [bytes(32)], []).name)


def grant(text: str) -> str:
    """For argparse: a grant."""
    return _checked(lambda: str(Grant.parse(text)))


def amount(text: str) -> int:
    """For argparse: how much of something."""
    if not (text.isascii() and text.isdecimal() and int(text) <= QUOTA_MAX):
        raise argparse.ArgumentTypeError(f"a whole number from 0 to {QUOTA_MAX}")
    return int(text)


def quotas(args: argparse.Namespace) -> dict[str, Any]:
    """Those that are given, as parameters of `Admin.set_user`."""
    given = {name: getattr(args, name) for name in QUOTA_OPTIONS}
    return {name: value for name, value in given.items() if value is not None}


def _checked(check: Any) -> str:
    try:
        found: str = check()
    except RequestError as error:
        raise argparse.ArgumentTypeError(error.detail) from None
    return found


def new_token() -> str:
    """256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
