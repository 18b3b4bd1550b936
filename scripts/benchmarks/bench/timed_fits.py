"""Fits of `compare.py`, one a line of standard input, by the bigsvm of one tree; answers a line a fit.

It sees a tree through `bigsvm.fit` alone, because everything below may differ in the other tree.

    python -P timed_fits.py      with PYTHONPATH = the tree
"""

from __future__ import annotations

import json
import os
import sys
import time

import bigsvm
from bigsvm.errors import BigSVMError


def main() -> None:
    """Until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed is no answer
    for line in sys.stdin:
        asked = json.loads(line)
        cpu, wall = time.process_time(), time.perf_counter()
        try:
            said = bigsvm.fit(asked["store"], **asked["options"]).document()
        except BigSVMError as error:
            answer = {"refused": str(error)}
        else:
            seconds = said["seconds"]
            answer = {
                "cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "solving": seconds["solving"],
                "passes": said["passes"], "gap": said["relative_gap"], "objective": said["objective"],
            }  # fmt: skip
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
