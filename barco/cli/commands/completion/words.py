"""The script itself, made of the parsers of all commands."""

import argparse
from collections.abc import Iterator
from typing import Any

_SCRIPT = """\
_barco() {{
    local at="" cur="${{COMP_WORDS[COMP_CWORD]}}" last="${{COMP_WORDS[COMP_CWORD-1]}}" i found=""
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at/${{COMP_WORDS[i]}}" in
            {paths}) at="$at/${{COMP_WORDS[i]}}" ;;
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


def script(commands: Any) -> str:
    """For bash, of these commands."""
    paths = list(_paths("", commands.choices))
    actions = {"": list(commands.choices)}
    values, options = [], []
    for at, parser in paths:
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
        paths=" | ".join(at for at, _ in paths),
        values="\n".join(values),
        options="\n".join(options),
        actions="\n".join(
            f'        "{at} "*) found="{" ".join(a)}" ;;' for at, a in actions.items()
        ),
    )


def _paths(before: str, choices: Any) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Commands and their actions, as paths."""
    for name, parser in choices.items():
        at = f"{before}/{name}"
        yield at, parser
        for each in parser._actions:
            if isinstance(each, argparse._SubParsersAction):
                yield from _paths(at, each.choices)


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
