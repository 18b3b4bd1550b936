"""Values as people type them on the command line, checked before anything else happens."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import click

from bigsvm.cli.habits import value_meant
from bigsvm.errors import MissingInput, OutputError, UsageError
from bigsvm.store.remote.names import is_remote, without_secrets
from bigsvm.units import as_names, parse_bytes, parse_seconds


class Size(click.ParamType):
    """512MiB, 4GB or, where `percent`, 25%; handed on as typed, since a percentage needs the machine."""

    name = "size"

    def __init__(self, percent: bool = True) -> None:
        self._percent = percent

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            # Any total will do to see whether it is a size at all.
            parse_bytes(str(value), total=1 << 40 if self._percent else None)
        except UsageError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class OneOf(click.Choice):
    """One of a few words; of a word of another program it is said what becomes of it here."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if meant := value_meant(str(value)):
            self.fail(f"{value!r}: {meant}", param, ctx)
        return super().convert(value, param, ctx)


class Source(click.ParamType):
    """What rows are read from: a path, or a URI; what a URL has of secrets is kept apart from its name."""

    name = "source"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return without_secrets(str(value))


class AnyPath(click.Path):
    """A path that the command itself opens.

    Click would refuse what exists and may not be read as a mistake in typing (exit 2), also where it is an output.
    """

    def __init__(self) -> None:
        super().__init__(readable=False, path_type=Path)


class LocalPath(AnyPath):
    """A path of a model, a run or a registry, which are read from local disks only."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if is_remote(str(value)):
            hint = "copy it here first: aws s3 cp --recursive, gcloud storage cp -r, azcopy copy"
            raise MissingInput("models, runs and registries are read from local disks only", str(value), hint)
        return super().convert(value, param, ctx)


class OutputPath(AnyPath):
    """A file or a folder to write that cannot go to standard output; `./-` is one of that name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "-" and not isinstance(value, Path):
            raise OutputError("this output cannot go to standard output", "-", "name a file or a folder")
        return super().convert(value, param, ctx)


class Names(click.ParamType):
    """A,B,... as a tuple; a name with a comma in it stands between quotation marks."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        try:
            return as_names(value if isinstance(value, tuple | list) else str(value))
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Renames(click.ParamType):
    """A=X,B=X,... as a dictionary; a pair with a comma in it stands between quotation marks."""

    name = "renames"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        if isinstance(value, dict):
            return {str(name): str(other) for name, other in value.items()}
        found: dict[str, str] = {}
        for pair in next(csv.reader([str(value)], skipinitialspace=True), ()):
            name, separator, other = pair.rpartition("=")
            if not (separator and name and other):
                self.fail(f"{pair!r} is not OLD=NEW", param, ctx)
            if name in found:
                self.fail(f"{name!r} gets two new names", param, ctx)
            found[name] = other
        return found


class Duration(click.ParamType):
    """90s, 15m or 2h, as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_seconds(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Gamma(click.ParamType):
    """'auto', 'scale', or a number."""

    name = "gamma"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | float:
        if value in ("auto", "scale"):
            return str(value)
        try:
            return float(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is neither 'auto' nor 'scale' nor a number", param, ctx)


class ClassWeight(click.ParamType):
    """'balanced', or LABEL=WEIGHT,LABEL=WEIGHT as a dictionary."""

    name = "class weight"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | dict[str, float]:
        if value == "balanced":
            return str(value)
        given = (
            value.items() if isinstance(value, dict) else (item.rpartition("=")[::2] for item in str(value).split(","))
        )
        pairs = [(str(label).strip(), weight) for label, weight in given]
        if len(dict(pairs)) < len(pairs):
            self.fail(f"{value!r} gives a class two weights", param, ctx)
        try:
            weights = {label: float(weight) for label, weight in pairs}
        except ValueError:
            weights = {}
        if not weights or "" in weights:
            self.fail(f"{value!r} is neither 'balanced' nor LABEL=WEIGHT,LABEL=WEIGHT", param, ctx)
        return weights


class Setting(click.ParamType):
    """KEY=VALUE, the value read as a number or true/false where it is one."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or not key.strip():
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key.strip(), _plain_value(text.strip())


def _plain_value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
