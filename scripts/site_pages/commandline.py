"""The command line as data: its commands, and what each takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import click

from bigsvm.cli.main import COMMANDS, group
from bigsvm.config import OPTIONS, TYPED

_DEFAULT = re.compile(r"\s*\[default: (.+)\]\s*$")


@dataclass(frozen=True)
class Typed:
    """An option or an argument of a command.

    spelled : as typed, '-c, --c C';  said : its help in one line;  default : as help shows it, '' where there is none
    changes : 'result', 'files' or 'nothing', and '' for what is no option of a fit
    """

    spelled: str
    said: str
    default: str
    changes: str


def command_names() -> list[str]:
    """In the order of `bigsvm --help`."""
    return list(COMMANDS)


def command(name: str) -> click.Command:
    """Imported from its module."""
    context = click.Context(group, info_name="bigsvm")
    found = group.get_command(context, name)
    assert found is not None, name
    return found


def usage(name: str) -> str:
    """`bigsvm fit [OPTIONS] STORE`."""
    arguments = [one for one in command(name).params if isinstance(one, click.Argument)]
    shown = [one.metavar or _metavar_of_argument(one) for one in arguments]
    return " ".join(["bigsvm", name, "[OPTIONS]", *shown])


def help_of(name: str) -> list[str]:
    """Paragraphs of a command's help, each in one line."""
    return [" ".join(part.replace("\b", "").split()) for part in re.split(r"\n\s*\n", command(name).help or "")]


def options_of(name: str) -> Iterator[Typed]:
    """The options of a command, in the order of its help."""
    shared = set(TYPED) if name in ("fit", "plan") else set()
    for one in command(name).params:
        if not isinstance(one, click.Option) or one.hidden:
            continue
        said = " ".join((one.help or "").split())
        in_help = _DEFAULT.search(said)
        said = _DEFAULT.sub("", said)
        default = in_help[1] if in_help else _default(one)
        takes = "" if one.is_flag or one.count else _metavar(one)
        spelled = ", ".join([*sorted(one.opts, key=len), *one.secondary_opts])
        changes = OPTIONS[TYPED[one.name]].changes if one.name in shared else ""
        yield Typed(f"{spelled} {takes}".strip(), said, default, changes)


def of_every_command() -> list[str]:
    """Options that all commands have, as they are spelled."""
    first, *others = (list(options_of(name)) for name in command_names())
    return [one.spelled for one in first if all(one in other for other in others)]


def _default(option: click.Option) -> str:
    shown = option.show_default
    if isinstance(shown, str):
        return shown
    if not shown or option.default is None or option.is_flag:
        return ""
    return str(option.default)


def _metavar(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    return option.type.name.replace(" range", "").upper()


def _metavar_of_argument(argument: click.Argument) -> str:
    name = (argument.name or "").upper()
    if isinstance(argument.type, click.Choice):
        name = "{" + "|".join(map(str, argument.type.choices)) + "}"
    name += "..." if argument.nargs == -1 else ""
    return name if argument.required else f"[{name}]"
