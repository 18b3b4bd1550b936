#!/usr/bin/env python3
"""The same small cases on two trees of this repository: what they write must be the same, byte for byte.

Each case of `same/cases.py` is fitted, certified and predicted by either tree, through its public surface alone.
Compared are all files of the models, predictions and ingested stores as bytes, and what the commands say (exit code,
status, figures, the words of a refusal) without clocks.  Exit 1 where anything differs, or where a case did not end
as it is meant to.

    scripts/same_bytes.py main~1 HEAD            two commits, each in a work tree of its own that goes away
    scripts/same_bytes.py main .                 a commit, and a folder as it is
    scripts/same_bytes.py main . --cache ~/same  keep the work trees and what was compiled for another time
    scripts/same_bytes.py main . --only 'smo-*'
    scripts/same_bytes.py . --workers 2          this tree in one process, and on two worker processes
    scripts/same_bytes.py --smoke                a few cases, this tree against itself
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fnmatch
import hashlib
import json
import os
import queue
import re
import resource
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, NamedTuple

from same.cases import CASES, DATA, SMOKE, Case, seals
from same.compare import Difference, compare_folders
from same.trees import REPOSITORY, checked_out, named

WORKER = Path(__file__).resolve().parent / "same" / "worker.py"
_PATIENCE_S = 900.0  # until a worker that says nothing is ended: a case may have to compile for minutes
_IMPORTS_NUMBA = re.compile(r"^\s*(?:import|from)\s+numba\b", re.MULTILINE)


class Tree(NamedTuple):
    """A tree to be tried: its folder, where its cases write, and BIGSVM_CACHE (None: as it is in the environment).

    workers : worker processes that run the tasks of its commands; 0: none, one thread
    """

    path: Path
    work: Path
    cache: Path | None
    workers: int = 0


# ---- trees


def digest_of_compiled(tree: Path) -> str:
    """Of the path and all sources in folders where numba is imported.

    A tree keeps its compiled code under a name of its own making; here another name is made, so that a tree whose name
    misses an edit cannot take what an earlier state of it has compiled.
    """
    digest = hashlib.sha256(str(tree).encode())
    sources = {path: path.read_bytes() for path in sorted((tree / "bigsvm").rglob("*.py"))}
    folders = {path.parent for path, text in sources.items() if _IMPORTS_NUMBA.search(text.decode())}
    for path, text in sources.items():
        if path.parent in folders:
            digest.update(f"{path.relative_to(tree)} {len(text)} ".encode() + text)
    return digest.hexdigest()[:16]


# ---- running


class Worker:
    """A process that runs cases of a tree, one after another; started again when a case has ended it."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.process: subprocess.Popen[str] | None = None

    def run(self, case: Case) -> str:
        """Run a case; what went wrong with the worker or with the case, or nothing."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        kind = DATA[case.data]
        line = {**dataclasses.asdict(case), "store": f"data/{kind.store}", "columns": kind.columns}
        late = threading.Timer(_PATIENCE_S, process.kill)
        late.start()
        try:
            # A worker that has ended already cannot be written to: its exit code says why.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(line) + "\n")
                process.stdin.flush()
            said = process.stdout.readline()
        finally:
            late.cancel()
        if not said:
            return f"the worker ended with {process.wait()}"
        answer = json.loads(said)
        if "not_as_meant" in answer:
            return str(answer["not_as_meant"])
        code = answer["exit"]
        return "" if code == case.code else f"exit code {code}, where this case is meant to end with {case.code}"

    def _started(self) -> subprocess.Popen[str]:
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, "-P", str(WORKER), str(self.tree.path)]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.tree.work, env=self._env()
            )
        return self.process

    def _env(self) -> dict[str, str]:
        """Nothing of the user's reaches a fit: neither options, nor another tree, nor a shared scratch folder."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("BIGSVM_", "PYTHON"))}
        scratch = self.tree.work / "tmp"
        scratch.mkdir(exist_ok=True)
        cache = os.environ.get("BIGSVM_CACHE") if self.tree.cache is None else self.tree.cache
        kept |= {"BIGSVM_CACHE": os.path.abspath(cache)} if cache else {}
        if self.tree.workers:
            kept |= {"BIGSVM_SCHEDULER": "processes", "BIGSVM_WORKERS": str(self.tree.workers)}
        return {**kept, "PYTHONPATH": str(self.tree.path), "TMPDIR": str(scratch), "OPENBLAS_NUM_THREADS": "1"}

    def close(self) -> None:
        """End the process, when it has nothing left to do."""
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
            self.process.wait()


def run_cases(trees: list[Tree], cases: list[Case], jobs: int) -> dict[tuple[int, str], str]:
    """Run all cases on all trees, `jobs` at a time; what went wrong, by tree and case."""
    wrong: dict[tuple[int, str], str] = {}
    failed: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    todo: list[queue.SimpleQueue[Case]] = [queue.SimpleQueue() for _ in trees]
    for line in todo:
        for case in cases:
            line.put(case)

    def work(which: list[int]) -> None:
        try:
            for number in which:
                one_worker(number)
        except BaseException as error:
            failed.put(error)

    def one_worker(number: int) -> None:
        worker = Worker(trees[number])
        try:
            with contextlib.suppress(queue.Empty):
                while True:
                    case = todo[number].get_nowait()
                    wrong[number, case.name] = worker.run(case)
        finally:
            worker.close()

    order = list(range(len(trees)))
    # One job takes a tree after the other; with more, each begins at another tree and then helps with the next.
    threads = [threading.Thread(target=work, args=(order[n % len(order) :] + order[: n % len(order)],))
               for n in range(jobs)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not failed.empty():
        raise failed.get()
    return wrong


def differences(case: Case, trees: list[Tree], wrong: dict[tuple[int, str], str]) -> list[Difference]:
    """All that is to be said of a case: how it ended, and where what was written differs."""
    found = [
        Difference("", f"{side}: {words}")
        for side, number in (("old", 0), ("new", 1))
        if (words := wrong[number, case.name])
    ]
    old, new = (tree.work / case.name for tree in trees)
    return found + compare_folders(old, new)


# ---- the program


def try_trees(options: argparse.Namespace, cases: list[Case], temporary: Path) -> dict[str, Any]:
    """Check both trees out, run the cases, compare; the summary."""
    work = temporary if options.keep is None else options.keep
    with contextlib.ExitStack() as stack:
        paths: dict[Path | str, Path] = {}  # two names of one tree are one tree
        trees = []
        for side, what in (("old", named(options.old)), ("new", named(options.new))):
            if what not in paths:
                paths[what] = stack.enter_context(checked_out(what, options.cache, temporary))
            cache = None if options.smoke else (options.cache or temporary) / f"cache-{digest_of_compiled(paths[what])}"
            trees.append(Tree(paths[what], work / side, cache, options.workers if side == "new" else 0))
            # Each tree has data of its own, as it seals them, under the same name relative to where it works.
            data = trees[-1].work / "data"
            data.mkdir(parents=True)
            for name in dict.fromkeys(case.data for case in cases):
                DATA[name].write(data / DATA[name].store)
        first = seals(cases)
        wrong = run_cases(trees, first, min(options.jobs, 2)) | run_cases(trees, cases, options.jobs)
        cases = [*first, *cases]
        found = {case.name: differences(case, trees, wrong) for case in cases}
    for name, all_of_it in found.items():
        for difference in all_of_it:
            sys.stdout.write(f"{name}: {difference.file}{': ' if difference.file else ''}{difference.words}\n")
    different = [name for name, all_of_it in found.items() if all_of_it]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "old": options.old, "new": options.new, "cases": len(cases),
        "same": len(cases) - len(different), "different": len(different),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "differences": [
            {"case": name, "file": difference.file, "words": difference.words}
            for name, all_of_it in found.items() for difference in all_of_it
        ],
    }  # fmt: skip


def main() -> None:
    """Run the cases on both trees and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", nargs="?", help="a revision of git's, or a folder")
    parser.add_argument("new", nargs="?", help="another one")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes [2]")
    parser.add_argument("--only", metavar="GLOB", default="*", help="cases by name")
    parser.add_argument("--list", action="store_true", help="name the cases, and run nothing")
    parser.add_argument("--workers", type=int, default=0, help="the second tree runs on so many worker processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary there")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new folder for all that is written; it stays")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="work trees and compiled code, kept for another time")
    parser.add_argument("--smoke", action="store_true", help="a few cases, this tree against itself")
    options = parser.parse_args()
    cases = [case for case in CASES if fnmatch.fnmatchcase(case.name, options.only)]
    if options.smoke:
        options.old = options.new = str(REPOSITORY)
        cases = [case for case in cases if case.name in SMOKE]
    if not cases:
        parser.error(f"no case is called {options.only}; --list names them")
    if options.list:
        sys.stdout.write("".join(f"{case.name}\n" for case in cases))
        return
    if options.workers:  # arrays are fitted by calls, which take no notice of the environment
        cases = [case for case in cases if case.door == "command"]
        options.new = options.new or options.old
    if options.new is None:
        parser.error("OLD and NEW are needed: revisions or folders")
    if options.keep is not None and options.keep.exists():
        parser.error(f"{options.keep} is there already")
    options.cache = None if options.cache is None else options.cache.resolve()
    options.keep = None if options.keep is None else options.keep.resolve()
    with tempfile.TemporaryDirectory(prefix="bigsvm-same-") as temporary:
        document = try_trees(options, cases, Path(temporary).resolve())
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    sys.stdout.write(
        f"{document['cases']} cases: {document['same']} the same, {document['different']} different "
        f"({document['cpu_seconds']} s of CPU)\n"
    )
    if document["different"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
