"""Man pages: what help says, in the language of man."""

from __future__ import annotations

import bigsvm
from bigsvm.cli.main import COMMANDS, group
from site_pages.commandline import command_names, help_of, options_of, usage

_EXITS = (
    ("0", "done; of fit: the tolerance is proved"),
    ("1", "a bug"),
    ("2", "usage"),
    ("4", "stopped before the tolerance; the model is written, its gap reported"),
    ("65", "data or model is bad"),
    ("66", "input not found"),
    ("73", "cannot write"),
    ("74", "reading or writing failed"),
    ("75", "interrupted; bigsvm resume goes on"),
    ("78", "refused: it cannot fit into the memory or the space given"),
)


def pages() -> dict[str, str]:
    """File name -> text."""
    found = {"bigsvm.1": _whole()}
    for name in command_names():
        found[f"bigsvm-{name}.1"] = _one(name)
    return found


def _one(name: str) -> str:
    lines = [*_head(f"bigsvm-{name}", COMMANDS[name][1]), ".SH SYNOPSIS", f".B {plain(usage(name))}", ".SH DESCRIPTION"]
    for paragraph in help_of(name):
        lines += [".PP", plain(paragraph)]
    lines.append(".SH OPTIONS")
    for one in options_of(name):
        default = f"  [default: {one.default}]" if one.default else ""
        lines += [".TP", f".B {plain(one.spelled)}", plain(one.said + default)]
    return "\n".join([*lines, *_tail()]) + "\n"


def _whole() -> str:
    lines = [*_head("bigsvm", group.help or ""), ".SH SYNOPSIS", ".B bigsvm COMMAND [OPTIONS] ...", ".SH COMMANDS"]
    for name in command_names():
        lines += [".TP", f".BR bigsvm\\-{plain(name)} (1)", plain(COMMANDS[name][1])]
    return "\n".join([*lines, *_tail()]) + "\n"


def _head(name: str, said: str) -> list[str]:
    title = f'.TH {name.upper()} 1 "" "bigsvm {bigsvm.__version__}" "User Commands"'
    return [title, ".SH NAME", f"{plain(name)} \\- {plain(said.rstrip('.'))}"]


def _tail() -> list[str]:
    lines = [".SH EXIT STATUS"]
    for code, said in _EXITS:
        lines += [".TP", f".B {code}", plain(said)]
    return lines


def plain(text: str) -> str:
    """Text in which man sees neither escapes nor requests."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
