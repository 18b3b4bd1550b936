"""Importing this module reads numba's tables of types and functions, as the first compiled call of a process does.

Reading them takes as long as a small fit, so a process that others are forked from imports it.
"""

from __future__ import annotations

from numba.core.registry import cpu_target

cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
