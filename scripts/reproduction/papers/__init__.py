"""The five papers, a file each: the options and the run of a reproduction, and what the paper prints."""

from __future__ import annotations

from reproduction.catalogue import Paper
from reproduction.papers import hyperpass, notes, rosen, rosenbrock, wss

PAPERS: dict[str, Paper] = {
    module.PAPER.name: module.PAPER for module in (rosenbrock, hyperpass, rosen, notes, wss)
}  # fmt: skip
"""In the order of docs/reproduction.md."""
