"""Options of functions compare as numba compares them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from numba.core.compiler import Flags
from numba.core.targetconfig import TargetConfig

from bigsvm.compiled.cache import options
from bigsvm.compiled.cache.options import compare_quickly


def test_options_of_functions_compare_as_numba_compares_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none, the same, a default or another value is set, of flags that functions are compiled with."""
    values: dict[str, tuple[Any, ...]] = {
        "nrt": (None, True, False),
        "error_model": (None, "python", "numpy"),
        "fastmath": (None, False, True, {"nnan"}),
        "no_cfunc_wrapper": (None, False, True),
    }
    flags = []
    for chosen in itertools.product(*values.values()):
        flag = Flags()
        for name, value in zip(values, chosen, strict=True):
            if value is not None:
                setattr(flag, name, value)
        flags.append(flag)
    others = [*flags, object(), None, TargetConfig()]

    def compared() -> tuple[list[bool], set[int]]:
        return [one == other for one in flags for other in others], {hash(one) for one in flags}

    plainly = compared()
    monkeypatch.setattr(TargetConfig, "__eq__", TargetConfig.__eq__)  # put back at the end
    monkeypatch.setattr(TargetConfig, "__hash__", TargetConfig.__hash__)
    compare_quickly()
    assert TargetConfig.__eq__.__module__ == options.__name__
    assert compared() == plainly
    assert 0 < sum(plainly[0]) - len(flags) < len(plainly[0]) / 2
