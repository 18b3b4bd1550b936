#!/usr/bin/env python3
"""Nights that go wrong, by the hundred: what is current is always a whole model that passed.

bad      candidates that are not finite, empty, worse, torn or of other features, each before a whole night of the
         job and before `promote` itself: none becomes current, and the registry keeps its bytes
reads    readers load `current` while versions are promoted and rolled back: never nothing, never of two versions;
         after each rollback the version is what it was, byte for byte
kills    SIGKILL at random instants of a night on which rows arrive, then the night again: the rows are added once,
         the model is that of a night nobody disturbed, byte for byte, and no fit that had a checkpoint begins anew

scripts/stress/nights.py --bad 200 --reads 100000 --kills 100
scripts/stress/nights.py --bad 0 --reads 0 --kills 100      a 0 leaves a part out
scripts/stress/nights.py --smoke
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # where `pipelines` is
sys.path.insert(0, str(Path(__file__).resolve().parent))
from nightly.bad import bad_candidates
from nightly.kills import killed_nights
from nightly.reads import reads_of_current


def main() -> None:
    """Run all trials and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bad", type=int, default=200)
    parser.add_argument("--reads", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", help="folder on a disk; a temporary one by default")
    parser.add_argument("--smoke", action="store_true", help="few of each")
    options = parser.parse_args()
    if options.smoke:
        options.bad, options.reads, options.kills = 4, 20, 1
    for what, trial, count in (
        ("bad", bad_candidates, options.bad),
        ("reads", reads_of_current, options.reads),
        ("kills", killed_nights, options.kills),
    ):
        if not count:
            continue
        with tempfile.TemporaryDirectory(dir=options.work) as folder:
            said = trial(Path(folder), count, options.seed)
        sys.stdout.write(f"{what}: {said}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
