"""A faster comparison of the options with which numba compiles functions.

For each comparison numba collects all options of both functions, although few are set.  While a hundred functions of
bigsvm are compiled, it does so 80,000 times, which takes a tenth of the CPU time (docs/measurements.md 11.2).
"""

from __future__ import annotations

from typing import Any

from numba.core.targetconfig import TargetConfig

plainly, plain_hash = TargetConfig.__eq__, TargetConfig.__hash__
"""numba's own."""


def compare_quickly() -> None:
    """Make numba compare the options of two functions by those that are set, for the rest of this process.

    It is meant for processes that only compile.
    """

    def equal(one: TargetConfig, other: Any) -> bool:
        if type(one) is not type(other):
            return plainly(one, other)
        ours, theirs, options = one._values, other._values, vars(type(one))["options"]
        return ours == theirs or all(
            ours.get(name, options[name].default) == theirs.get(name, options[name].default)
            for name in ours.keys() | theirs.keys()
        )

    def hashed(one: TargetConfig) -> int:
        kind = type(one)
        if kind not in hashes:
            hashes[kind] = plain_hash(one)  # a hash of the names of all options, which depend on the class alone
        return hashes[kind]

    hashes: dict[type, int] = {}
    TargetConfig.__eq__, TargetConfig.__hash__ = equal, hashed
