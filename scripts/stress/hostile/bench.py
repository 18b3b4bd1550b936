"""A good store and good models, and the judge of what becomes of bad ones."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import bigsvm
from bigsvm.cli.main import run as command_line
from bigsvm.compiled.shared.rows import CSR
from bigsvm.files.atomic import file_digest
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.model_files import document_text
from bigsvm.problem.kernel import Kernel
from hostile.cases import Case

REFUSED = {65, 66, 73, 74, 78}
MOST_MEMORY, MOST_TIME = 1 << 30, 10  # CPU seconds: others may want the machine, too
MOST_WAITING = 300  # seconds: a pipe that nobody writes to takes no CPU


class Bench:
    """A good store and model, and the judge."""

    def __init__(self, work: Path) -> None:
        self.work, self.failed = work, 0
        rng = np.random.default_rng(0)
        X = sp.random(300, 40, 0.3, "csr", np.float32, rng)
        bigsvm.ingest((X, np.where(X @ rng.normal(size=40) > 0, 1, -1)), work / "good", chunk_bytes=4096)
        code, said = self.bigsvm(*self.fit(work / "good", work))
        if code:
            raise SystemExit(said)
        self.right = (work / "m" / "coef.npy").read_bytes()
        self.least = self.least_memory()
        code, said = self.bigsvm(*self.streamed(work / "good", work / "streamed"))
        if code:
            raise SystemExit(said)
        some = X[:20].tocsr()
        support = CSR(some.data, some.indices.astype(np.int32), some.indptr.astype(np.int64))
        coef = rng.normal(size=(1, 20))
        KernelModel(Kernel("rbf", 0.1), support, np.arange(20), coef, np.zeros(1), np.array([-1, 1]), 40).save(
            work / "k"
        )

    def fit(self, store: Path, folder: Path) -> list[str]:
        return [
            *("fit", str(store), "--memory", "64MiB", "--quiet", "-o", str(folder / "m")),
            *("--scratch", str(folder / "s")),
        ]

    def least_memory(self) -> int:
        """Bytes with which the good store streams."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            command_line(["plan", str(self.work / "good"), "--json", "--quiet"])
        return int(json.loads(out.getvalue())["result"]["min_memory_bytes"])

    def bigsvm(self, *arguments: str) -> tuple[int, str]:
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            return command_line(list(arguments)), said.getvalue()

    def try_store(self, name: str, case: Case, renewed: bool) -> None:
        """Fit from a bad store; `renewed`: sealed again first."""
        folder = self.work / "try"
        folder.mkdir()
        shutil.copytree(self.work / "good", folder / "bad")
        case(folder / "bad")
        commands = [self.fit(folder / "bad", folder)]
        if renewed:
            manifest = folder / "bad" / "bigsvm-manifest.json"
            if "manifest" not in name:
                manifest.unlink(missing_ok=True)
            commands = [["seal", str(folder / "bad")], *commands]
        self.judge(f"store: {name}{', digests renewed' if renewed else ''}", commands, folder)

    def try_model(self, name: str, case: Case, renewed: bool, good: str = "m") -> None:
        """Predict with a bad model; `renewed`: its digests are those of its files."""
        folder = self.work / "try"
        folder.mkdir()
        shutil.copytree(self.work / good, folder / "bad")
        case(folder / "bad")
        with contextlib.suppress(ValueError, KeyError, TypeError, OSError, RecursionError):
            if renewed and "/dev/zero" not in name and "pipe" not in name:
                document = json.loads((folder / "bad" / "model.json").read_text())
                for array in (folder / "bad").glob("*.npy"):
                    document["digests"][array.name] = file_digest(array)
                (folder / "bad" / "model.json").write_text(document_text(document))
        command = ["predict", str(folder / "bad"), str(self.work / "good"), "-o", str(folder / "out.csv"), "--quiet"]
        self.judge(f"model: {name}{', digests renewed' if renewed else ''}", [command], folder)

    def try_kernel_model(self, name: str, case: Case, renewed: bool) -> None:
        """The same of a kernel model."""
        self.try_model(name, case, renewed, "k")

    def try_copy(self, name: str, case: Case, renewed: bool) -> None:
        """Fit with a bad working copy in the scratch folder."""
        folder = self.work / "try"
        shutil.copytree(self.work / "streamed" / "s", folder / "s")
        (copy,) = (folder / "s" / "bigsvm").glob("rows-*/")
        case(copy)
        self.judge(f"copy: {name}", [self.streamed(self.work / "good", folder)], folder, "streamed")

    def try_side(self, name: str, case: Case, renewed: bool) -> None:
        """Fit from a good store that was never sealed, whose side manifest is bad."""
        folder, sides = self.work / "try", Path(os.environ["BIGSVM_CACHE"]) / "bigsvm" / "manifests"
        shutil.copytree(self.work / "good", folder / "unsealed")
        (folder / "unsealed" / "bigsvm-manifest.json").unlink()
        shutil.rmtree(sides, ignore_errors=True)
        self.bigsvm("plan", str(folder / "unsealed"))
        (side,) = sides.iterdir()
        shutil.move(side, folder / "MANIFEST")
        case(folder)
        shutil.move(folder / "MANIFEST", side)
        self.judge(f"side: {name}", [self.fit(folder / "unsealed", folder)], folder, "")

    def try_hole(self, name: str, case: Case, renewed: bool) -> None:
        """Fit from a store that has lost chunks; `renewed`: it was never sealed, and is now."""
        folder = self.work / "try"
        shutil.copytree(self.work / "good", folder / "bad")
        case(folder / "bad")
        commands = [self.fit(folder / "bad", folder)]
        if renewed:
            (folder / "bad" / "bigsvm-manifest.json").unlink()
            commands = [["seal", str(folder / "bad")], *commands]
        self.judge(f"hole: {name}{', sealed' if renewed else ''}", commands, folder, "")

    def streamed(self, store: Path, folder: Path) -> list[str]:
        """The command of a fit that makes a working copy: its least memory holds no rows."""
        return [*self.fit(store, folder), "--memory", str(self.least)]

    def judge(self, where: str, commands: list[list[str]], folder: Path, like: str | None = None) -> None:
        """Run, then say what was not clean.

        like : the folder of the fit whose model is the right one, and the only one; None: another one may be right, too
        """
        before, began = memory(), time.monotonic()
        payload = Path(os.environ["BIGSVM_PAYLOAD"])
        wrong, said, code = "", "", -1
        signal.setitimer(signal.ITIMER_PROF, MOST_TIME)
        signal.alarm(MOST_WAITING)
        try:
            for command in commands:
                code, said = self.bigsvm(*command)
                if code:
                    break
        except TimeoutError:
            wrong = f"took more than {MOST_TIME} CPU s, or waited for {MOST_WAITING} s"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
        lines = [line for line in said.splitlines() if "warning" not in line]
        right = self.right if not like else (self.work / like / "m" / "coef.npy").read_bytes()
        if code == 0 and (folder / "m").exists() and (folder / "m" / "coef.npy").read_bytes() != right:
            wrong = wrong or (self.harmless(folder) if like is None else "another model")
        elif code not in REFUSED | {0, 4}:
            wrong = wrong or f"exit {code}"
        elif code not in (0, 4) and len(lines) != 1:
            wrong = wrong or "more than one line"
        if payload.exists():
            wrong, _ = "the payload ran", payload.rmdir()
        if memory() - before > MOST_MEMORY >> 10:
            wrong = wrong or f"{(memory() - before) >> 10} MiB"
        if wrong:
            self.failed += 1
            sys.stdout.write(f"{where}: {wrong} ({time.monotonic() - began:.1f} s)\n{said}\n")
            sys.stdout.flush()
        shutil.rmtree(folder)

    def harmless(self, folder: Path) -> str:
        """Another model than the good store's is right where the numbers are others, and sound."""
        coef = bigsvm.load_model(folder / "m").coef
        return "" if np.all(np.isfinite(coef)) else "a model that is not finite"


def memory() -> int:
    """Most resident memory so far, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
