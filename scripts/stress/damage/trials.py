"""What a trial is: something is damaged, a command is run, and what comes of it is refused or harmless."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import bigsvm
from bigsvm.cli.main import run as command_line
from damage.ways import Damage

REFUSED = (65, 66, 73, 74)


def run(command: list[str]) -> tuple[int, str]:
    """Exit code and standard error of a command in this process."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = command_line(command)
    return code, said.getvalue()


def must(command: list[str]) -> None:
    """Run a command that has no reason to fail."""
    code, said = run(command)
    if code:
        raise SystemExit(f"exit {code}: {' '.join(command)}\n{said}")


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fit(store: Path, folder: Path, *more: str) -> list[str]:
    """The command that fits `store` into `folder`/m, with scratch there."""
    return [
        *("fit", str(store), "--memory", "64MiB", "--quiet", "--overwrite", "--max-passes", "10"),
        *("--allow-unconverged", "--scratch", str(folder / "scratch"), "-o", str(folder / "m")),
        *(more or ("--loss", "hinge")),
    ]


def random_rows(seed: int, rows: int = 400, features: int = 20_000) -> tuple[sp.csr_matrix, np.ndarray]:
    """Wide rows sorted by label: features are renumbered and rows shuffled, so that a copy has all kinds of files."""
    rng = np.random.default_rng(seed)
    X = sp.random(rows, features, 20 / features, "csr", np.float32, rng)
    y = np.where(X @ rng.normal(size=features) > 0, 1, -1)
    order = np.argsort(y, kind="stable")
    return X[order], y[order]


class Trials:
    """Counts what came of each trial, and says what was silently wrong.  `folder` is fresh for each one."""

    def __init__(self, work: Path, seed: int) -> None:
        self.work, self.random = work, random.Random(seed)
        self.seen, self.wrong, self._wrong_before = Counter[str](), 0, 0

    @property
    def folder(self) -> Path:
        return self.work / "try"

    def damage(self, damage: Damage, root: Path, among: Iterable[Path] | None = None) -> str:
        """Damage one file below `root`, of `among` if that is given; its key."""
        # Names of features are not read by a fit.
        files = sorted(path for path in root.rglob("*") if path.is_file() and "_index" not in path.parts)
        file = self.random.choice(sorted(among) if among is not None else files)
        before = file.read_bytes()
        others = [path for path in files if path.read_bytes() != before]
        damage(file, others, self.random)
        return str(file.relative_to(root))

    def judge(
        self, where: str, command: list[str], out: Path, right: dict[str, bytes], named: str = "", only: bool = False
    ) -> None:
        """Run what follows the damage; count it as refused or harmless, and say where it is neither.

        out : what the command makes;  right : the files of the right result;  named : what a refusal should name
        only : nothing but a refusal will do
        """
        code, said = run(command)
        lines = [line for line in said.splitlines() if "warning" not in line]
        made = contents(out) if out.is_dir() else {out.name: out.read_bytes()} if out.exists() else {}
        if code in REFUSED and len(lines) == 1 and lines[0].startswith("bigsvm: error: ") and not made:
            # A swap is noticed at either of the two; metadata by what it makes of the others.
            known = not named or Path(named).name in said or named.split("/")[0] in said
            self.seen["refused" if known else "refused, another key named"] += 1
        elif code == 0 and made == right and not only:
            self.seen["harmless"] += 1
        else:
            self.wrong += 1
            what = "the right result, but it had to be refused" if made == right else "another result"
            sys.stdout.write(f"WRONG: {where}: exit {code}{f', {what}' if code == 0 else ''}\n{said}")
        shutil.rmtree(self.folder, ignore_errors=True)

    def told(self, name: str) -> None:
        """Print the counts since the last time."""
        wrong, self._wrong_before = self.wrong - self._wrong_before, self.wrong
        found = ", ".join(f"{count} {what}" for what, count in [*sorted(self.seen.items()), (wrong, "silently wrong")])
        sys.stdout.write(f"{name}: {sum(self.seen.values()) + wrong} trials: {found}\n")
        sys.stdout.flush()
        self.seen.clear()


def sealed_store(path: Path, seed: int) -> Path:
    """A store of random rows; four chunks or more of each array."""
    bigsvm.ingest(random_rows(seed), path, chunk_bytes=4096)
    return path


def same_claims(one: Path, other: Path) -> bool:
    """Whether two model.json say the same."""
    try:
        return bool(json.loads(one.read_bytes()) == json.loads(other.read_bytes()))
    except ValueError:
        return False
