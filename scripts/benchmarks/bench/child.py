"""A run in a process of its own: `python -m bench.child JOB.json OUT.npz`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from bench.solvers import Job, run


def main() -> None:
    """Do the job; figures as JSON and weights go into the output file."""
    job = Job(**json.loads(Path(sys.argv[1]).read_text()))
    about, points = run(job)
    about["points"] = [
        {"rung": p.rung, "seconds": p.seconds, "passes": p.passes, "cpu_seconds": p.cpu_seconds} for p in points
    ]
    np.savez(sys.argv[2], about=json.dumps(about), **{f"w{k}": p.w for k, p in enumerate(points)})


if __name__ == "__main__":
    main()
