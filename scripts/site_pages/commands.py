"""docs/reference/commands.md: every command with every option."""

from __future__ import annotations

import re

from bigsvm.cli.main import COMMANDS
from site_pages.commandline import Typed, command_names, help_of, of_every_command, options_of, usage

_HEAD = """\
# Commands and options

This page is written by `scripts/reference.py` from the program, and a test holds it to that. `bigsvm COMMAND --help`
says the same in a terminal.

Any option may also come from a file, `--config job.toml`, whose keys are the option names with `_` for `-`
(`max_passes = 40`), or from a variable, `BIGSVM_` and the name in capitals (`BIGSVM_MEMORY=2GiB`). A flag wins over a
variable, a variable over the file.

Sizes are written `512MiB`, `4GB` or `25%` (of the memory limit in force), durations `90s`, `15m` or `2h`.

These variables are not options ([Install](../install.md#first-start) has more about the cache):

| variable | meaning |
|---|---|
| `BIGSVM_CACHE` | Folder that holds the cache folder `bigsvm`; default `$XDG_CACHE_HOME`, else `~/.cache`. |
| `BIGSVM_SCRATCH` | Folder for temporary files; the default of `--scratch`, also for commands without that option. |
| `TMPDIR` | The temporary folder, in which the scratch folder lies if nothing names one. |
| `BIGSVM_BUILD_CACHE` | What is compiled for a wheel: `demo`, `all` or `none`. |
| `MLFLOW_TRACKING_URI` | Server of `--mlflow`. |
| `NO_COLOR` | If set, no colours on a terminal. |

*Changes* says what an option of a fit can change: the **result** (coefficients and proof), the **files** that a model
has, or **nothing** but where and how fast the fit runs.
"""


def page() -> str:
    """The whole page."""
    lines = [_HEAD, "| command | what it does |", "|---|---|"]
    lines += [f"| [`{name}`](#bigsvm-{name}) | {COMMANDS[name][1]} |" for name in command_names()]
    shared = of_every_command()
    lines += ["", "## Options of every command", ""]
    lines += options([one for one in options_of(command_names()[0]) if one.spelled in shared])
    for name in command_names():
        lines += ["", *section(name, [one for one in options_of(name) if one.spelled not in shared])]
    return "\n".join(lines) + "\n"


def section(name: str, own: list[Typed]) -> list[str]:
    """One command, with the options that not all commands have."""
    lines = [f"## bigsvm {name}", "", "```text", usage(name), "```"]
    for paragraph in help_of(name):
        lines += ["", cell(paragraph)]
    return lines + (["", *options(own)] if own else [])


def options(found: list[Typed]) -> list[str]:
    """A table of options."""
    changing = any(one.changes for one in found)
    head = ["option", "meaning", "default", *(["changes"] if changing else [])]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for one in found:
        spelled = one.spelled.replace("|", r"\|")
        cells = [f"`{spelled}`", cell(one.said), cell(one.default), *([one.changes] if changing else [])]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def cell(text: str) -> str:
    """Text of help as Markdown: nothing in it means more than it says, but for code between backticks."""
    parts = text.split("`")
    parts[::2] = (re.sub(r"([*_\[\]])", r"\\\1", part.replace("<", "&lt;")) for part in parts[::2])
    return "`".join(parts).replace("|", r"\|")
