"""Quicker comparison of the options that numba compiles functions with.

numba collects all options of both functions for each comparison, where few are set: 80,000 times while a hundred of our
functions are compiled, a tenth of the CPU that this takes (docs/measurements.md 11.2).
"""

from __future__ import annotations

from numba.core.targetconfig import TargetConfig


def compare_quickly() -> None:
    """From now on numba compares the options of two functions by those that are set, for as long as this process lives.

    For a process that only compiles.
    """

    def equal(one: TargetConfig, other: object) -> bool:
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
            hashes[kind] = plain_hash(one)  # of the names of all options, which are those of the class
        return hashes[kind]

    plainly, plain_hash, hashes = TargetConfig.__eq__, TargetConfig.__hash__, dict[type, int]()
    TargetConfig.__eq__, TargetConfig.__hash__ = equal, hashed  # type: ignore[method-assign]
