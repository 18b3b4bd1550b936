"""The command class: options that every command has, BIGSVM_* variables, and values from a TOML file.

Precedence: flag > BIGSVM_* variable > --config file > default, by click's own rules.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bigsvm.cli.session import Session
from bigsvm.errors import MissingInput, UsageError

# Handled before the command runs, so a file cannot set them for it.
_NOT_IN_FILES = ("config", "help")


class Call:
    """What `main` keeps of a call, so that a failure is reported the way the call asked for."""

    def __init__(self) -> None:
        self.session: Session | None = None


class BigsvmCommand(click.Command):
    """A command whose callback takes a Session first, with the common options added.

    light : it loads none of the libraries that need room
    """

    def __init__(self, *args: Any, light: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.light = light
        self.params.extend(_common_options())
        # One prefix for all commands: BIGSVM_MEMORY, not BIGSVM_FIT_MEMORY.
        self.context_settings = {
            "auto_envvar_prefix": "BIGSVM",
            "help_option_names": ["-h", "--help"],
            "max_content_width": 110,
            **self.context_settings,
        }

    def invoke(self, ctx: click.Context) -> Any:
        values = ctx.params
        session = Session(
            command=ctx.info_name or self.name or "",
            as_json=values.pop("json"),
            quiet=values.pop("quiet"),
            verbose=values.pop("verbose"),
            log_format=values.pop("log_format"),
            progress=not values.pop("no_progress"),
            debug=values.pop("debug"),
        )
        values.pop("config")
        call = ctx.find_object(Call)
        if call is not None:
            call.session = session
        values["session"] = session
        from bigsvm.store.remote.settings import storing  # the program's help has no use for it

        ctx.with_resource(storing(watch=session.watching))
        if not self.light:
            from bigsvm.machine import check_address_space

            check_address_space()
        return super().invoke(ctx)


def bigsvm_command(**attributes: Any) -> Callable[[Callable[..., int]], BigsvmCommand]:
    """Decorator: make a command of a function(session, **options) that returns the exit code."""
    return click.command(cls=BigsvmCommand, **attributes)


def _common_options() -> list[click.Option]:
    return [
        click.Option(["--json"], is_flag=True, help="Write one JSON document to standard output."),
        click.Option(["--quiet"], is_flag=True, help="Print only failures, answers and --json."),
        click.Option(["-v", "--verbose"], count=True, help="Print more on standard error."),
        click.Option(
            ["--log-format"],
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="Format of standard error; json: one event a line.",
        ),
        click.Option(["--no-progress"], is_flag=True, help="Show no live view, even on a terminal."),
        click.Option(["--debug"], is_flag=True, help="Show the traceback of a failure."),
        click.Option(
            ["--config"],
            type=click.Path(dir_okay=False, readable=False, path_type=Path),
            is_eager=True,
            callback=_read_config,
            help="TOML file with option names as keys; flags and BIGSVM_* variables take precedence.",
        ),
    ]


def _read_config(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Make the defaults of this call of a TOML file; click's default_map has the right precedence."""
    if value is None or ctx.resilient_parsing:
        return value
    import tomllib  # here, to keep the start of commands light: few are given a file

    try:
        document = tomllib.loads(value.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingInput(f"cannot read the configuration: {error.strerror}", str(value)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not TOML: {error}", str(value)) from error
    ctx.default_map = {**(ctx.default_map or {}), **_by_parameter(document, ctx, value)}
    return value


def _by_parameter(document: dict[str, Any], ctx: click.Context, path: Path) -> dict[str, Any]:
    """Values by parameter name.  Raises UsageError for a key that is no option of the command."""
    names: dict[str, click.Option] = {}
    for option in ctx.command.params:
        if isinstance(option, click.Option) and option.name not in _NOT_IN_FILES:
            for flag in option.opts:
                names[flag.lstrip("-")] = option
    values = {}
    for key, value in document.items():
        known = names.get(key) or names.get(key.replace("_", "-"))
        if known is None:
            raise UsageError(
                f"unknown key {key!r}",
                str(path),
                f"keys are the options of bigsvm {ctx.info_name} without the dashes",
            )
        assert known.name is not None
        if known.multiple and isinstance(value, dict):
            value = [f"{name}={item}" for name, item in value.items()]
        elif isinstance(value, list) and not known.multiple:
            raise UsageError(f"{key} takes one value, not a list", str(path))
        values[known.name] = value
    return values
