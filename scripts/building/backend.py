"""The build backend: hatchling's, which for a wheel with compiled functions wants what bigsvm itself needs."""

from __future__ import annotations

import tomllib
from typing import Any

from hatch_build import wanted_uses
from hatchling.build import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
)
from hatchling.build import get_requires_for_build_wheel as _hatchlings

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """As `hatch_build.py` has it: small fits are made with the package, unless the cache is not wanted."""
    hatchlings = _hatchlings(config_settings)
    if not wanted_uses():
        return hatchlings
    with open("pyproject.toml", "rb") as file:
        return [*hatchlings, *tomllib.load(file)["project"]["dependencies"]]
