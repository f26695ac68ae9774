"""`barco completion`: what a shell needs to complete barco's commands and options."""

import argparse
from collections.abc import Iterator
from typing import Any

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

_SCRIPT = """\
_barco() {{
    local at="" cur="${{COMP_WORDS[COMP_CWORD]}}" last="${{COMP_WORDS[COMP_CWORD-1]}}" i found=""
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at/${{COMP_WORDS[i]}}" in
            {places}) at="$at/${{COMP_WORDS[i]}}" ;;
        esac
    done
    case "$at $last" in
{values}
    esac
    case "$at $cur" in
{options}
{actions}
    esac
    COMPREPLY=($(compgen -W "$found" -- "$cur"))
}}
complete -o default -F _barco barco
"""


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


def script(commands: Any) -> str:
    """For bash, of these commands."""
    places = list(_places("", commands.choices))
    actions = {"": list(commands.choices)}
    values, options = [], []
    for at, parser in places:
        named: list[str] = []
        for each in parser._actions:
            if isinstance(each, argparse._SubParsersAction):
                actions[at] = list(each.choices)
            elif each.option_strings:
                named += [name for name in each.option_strings if name.startswith("--")]
                values += _value(at, each)
            elif each.choices:
                actions[at] = [str(choice) for choice in each.choices]
        options.append(f'        "{at} -"*) found="{" ".join(named)}" ;;')
    return _SCRIPT.format(
        places=" | ".join(at for at, _ in places),
        values="\n".join(values),
        options="\n".join(options),
        actions="\n".join(
            f'        "{at} "*) found="{" ".join(a)}" ;;' for at, a in actions.items()
        ),
    )


def _places(before: str, choices: Any) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Commands and their actions, as paths."""
    for name, parser in choices.items():
        at = f"{before}/{name}"
        yield at, parser
        for each in parser._actions:
            if isinstance(each, argparse._SubParsersAction):
                yield from _places(at, each.choices)


def _value(at: str, option: argparse.Action) -> list[str]:
    """What may follow an option: one of its choices, or the name of a file."""
    if option.nargs == 0:
        return []
    names = " | ".join(f'"{at} {name}"' for name in option.option_strings)
    if option.choices:
        words = " ".join(map(str, option.choices))
        found = f'COMPREPLY=($(compgen -W "{words}" -- "$cur"))'
    else:
        found = "COMPREPLY=()"
    return [f"        {names}) {found}; return ;;"]
