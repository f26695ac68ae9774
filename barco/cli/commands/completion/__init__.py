"""`barco completion`: what a shell needs to complete barco's commands and options."""

import argparse
from typing import Any

from barco.cli.commands.completion.words import script

DESCRIPTION = """\
Print a script by which a shell completes commands, actions, options and their values. It asks no
broker, and is made anew with each version.
"""

EPILOG = """\
Examples:
  source <(barco completion bash)                      for this shell; or in ~/.bashrc
  barco completion bash > /etc/bash_completion.d/barco for everybody
  source <(barco completion zsh)                       or in ~/.zshrc, behind compinit

Exit codes:
  0    success
  2    wrong usage
"""

_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def add_parser(subparsers: Any) -> None:
    """Describe the command. It tells of all others, so their parsers are to be there when it
    runs."""
    parser = subparsers.add_parser(
        "completion", help="a script by which a shell completes words", description=DESCRIPTION,
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("shell", choices=("bash", "zsh"), help="which one it is for")
    parser.set_defaults(commands=subparsers)


def run(args: argparse.Namespace) -> int:
    """Print it."""
    print((_ZSH if args.shell == "zsh" else "") + script(args.commands), end="")
    return 0
