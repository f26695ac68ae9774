"""What users say of users: names, grants; and the tokens that are made for them."""

import argparse
import secrets
from typing import Any

from barco.errors import RequestError
from barco.limits import QUOTA_MAX
from barco.model.access import TOKEN_PREFIX, Grant, User

TOKEN_BYTES = 32


def name(text: str) -> str:
    """For argparse: a user's name."""
    return _checked(lambda: User.checked(text, [bytes(32)], []).name)


def grant(text: str) -> str:
    """For argparse: a grant."""
    return _checked(lambda: str(Grant.parse(text)))


def amount(text: str) -> int:
    """For argparse: how much of something in a second."""
    if not (text.isascii() and text.isdecimal() and int(text) <= QUOTA_MAX):
        raise argparse.ArgumentTypeError(f"a whole number from 0 to {QUOTA_MAX}")
    return int(text)


def _checked(check: Any) -> str:
    try:
        found: str = check()
    except RequestError as error:
        raise argparse.ArgumentTypeError(error.detail) from None
    return found


def new_token() -> str:
    """256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
