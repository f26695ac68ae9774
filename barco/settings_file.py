"""The configuration's file: from a path to a document of sections, or one line that says why not.

It may hold anything: bytes that are no text, numbers of any length, keys that take the parser
hours. What `barco.config` gets from here is of bounded size and depth.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from barco import limits
from barco.errors import ConfigError

# Text and comments, whose dots are no key's. Whatever is not closed goes to its end, so that each
# byte is looked at once.
_QUOTED = re.compile(
    r"""\"{3}(?:\\.|(?!"{3})[^\\])*+(?:"{3})?|'{3}(?:(?!'{3}).)*+(?:'{3})?"""
    r"""|"(?:\\.|[^"\\\n])*+"?|'[^'\n]*+'?|\#[^\n]*+""",
    re.DOTALL,
)
_DEEP = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{limits.CONFIG_KEY_DOTS_MAX}}}")


def document(path: Path) -> dict[str, Any]:
    """What the TOML file at `path` says. ConfigError for what is no such file, or too large."""
    try:
        with path.open("rb") as file:
            data = file.read(limits.CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error}") from None
    if len(data) > limits.CONFIG_BYTES_MAX:
        most = limits.CONFIG_BYTES_MAX >> 10
        raise ConfigError(f"{path} has more than {most} KiB: that is no configuration of a broker")
    too_deep = ConfigError(f"{path} is nested too deep: a section has keys, and no more")
    try:
        # Line ends as text files have them, which the parser of TOML expects.
        text = data.decode("utf-8").replace("\r\n", "\n")
        # tomllib takes a time that grows with the square of a key's parts.
        if _DEEP.search(_QUOTED.sub("text", text)):
            raise too_deep
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    except ValueError:
        raise ConfigError(f"{path} has a number with thousands of digits") from None
    except RecursionError:
        raise too_deep from None
