"""One option of a fit: what is said of it once, beside its default."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Literal

Changes = Literal["result", "files", "nothing"]


@dataclass(frozen=True)
class Option:
    """What is known of one option beside its default.

    changes : 'result' (coefficients, proof or problem), 'files' (which files a model has, and not what it says), or
        'nothing' (where, how fast or how long a fit runs)
    flags : as typed, "-e --tol"; empty for what nobody types
    kind : how a typed value is read: 'text', 'int', 'float', 'flag', 'size', 'size or share', 'duration', 'gamma',
        'class weight', 'settings'
    choices : the values that there are, where they are few
    shown : the default as help shows it; None: as it is, '' : not at all
    positive : a number above 0;  least : a number that is at least so large
    negated : the flag means False
    reading : commands that only read the data have it, too
    solvers : by name, those that take notice; empty: all, or the plan
    """

    changes: Changes
    flags: str = ""
    help: str = ""
    kind: str = "text"
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    shown: str | None = ""
    positive: bool = False
    least: float | None = None
    negated: bool = False
    reading: bool = False
    solvers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the command line, a configuration file and the environment call it."""
        long = next((flag for flag in self.flags.split() if flag.startswith("--")), "")
        return long.removeprefix("--").replace("-", "_")

    def wanted(self, value: object) -> str:
        """What a value of this kind is, as a refusal of `value` says it; '' where `value` is one."""
        said, is_one = _KINDS[self.kind]
        return "" if is_one(value) else said


def result(default: Any, flags: str = "", said: str = "", **more: Any) -> Any:
    """A field that changes what a model says: coefficients, proof or problem."""
    return _field(default, Option("result", flags, said, **more))


def files(default: Any, flags: str = "", said: str = "", **more: Any) -> Any:
    """A field that changes which files a model has, and not what it says."""
    return _field(default, Option("files", flags, said, **more))


def place(default: Any, flags: str = "", said: str = "", **more: Any) -> Any:
    """A field that says where, how fast or how long a fit runs, and leaves the bytes of its model alone."""
    return _field(default, Option("nothing", flags, said, **more))


def _field(default: Any, option: Option) -> Any:
    if callable(default):
        return field(default_factory=default, metadata={"option": option})
    return field(default=default, metadata={"option": option})


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_size(value: object) -> bool:
    return isinstance(value, str) or _is_whole(value) or (isinstance(value, float) and value.is_integer())


def _is_class_weight(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and all(_is_number(one) for one in value.values()))


_KINDS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "text": ("text", lambda value: isinstance(value, str | os.PathLike)),
    "int": ("a whole number", _is_whole),
    "float": ("a number", _is_number),
    "flag": ("True or False", lambda value: isinstance(value, bool)),
    "size": ("bytes or a size such as '512MiB'", _is_size),
    "size or share": ("bytes or a size such as '512MiB' or '25%'", _is_size),
    "duration": ("seconds or a duration such as '90s'", lambda value: isinstance(value, str) or _is_number(value)),
    "gamma": ("auto, scale or a number", lambda value: isinstance(value, str) or _is_number(value)),
    "class weight": ("'balanced' or the weight of each label, {label: weight}", _is_class_weight),
    "settings": ("{name: value}", lambda value: isinstance(value, Mapping)),
}
"""Of each kind of option: what its values are, in words, and which are."""
