#!/usr/bin/env python3
"""Mutants: small faults that nobody would see at once, planted one at a time, and the tests that should see each.

    scripts/mutation.py --json mutation.json --work DIR      all; with the same file it goes on where it stopped
    scripts/mutation.py --only 'proof-*' --work DIR          those whose names fit
    scripts/mutation.py --check                              whether all can still be planted; runs nothing
    scripts/mutation.py --places                             where the mutants of the record are now; runs nothing
    scripts/mutation.py --smoke                              two, for the test suite

`scripts/mutants/*.toml` lists them: the file, its old text (which occurs once), the new one, the tests that should
fail, and what would go wrong in silence.  A mutant lives in a copy of the tree, never in the checkout.

killed      a test failed, crashed, or could not be imported
survived    all tests passed: one is missing, or the mutant changes nothing
undecided   the tests used up their CPU seconds (of a process, not of the clock: load decides nothing)
equivalent  it survives, and beside it stands why no test could tell

A line of the JSON file counts as long as the mutant, its file and its tests are what they were.  The `file` of a line
is where the mutant is now; at the commit of the line it may have been elsewhere.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "scripts" / "mutants"
RECORD = ROOT / "docs" / "figures" / "mutation.json"
COPIED = ("bigsvm", "tests", "pipelines", "scripts", "pyproject.toml", "README.md")
SMOKE = ("decide-zero-is-a-vote-for-the-first", "sealed-json-unchecked")
KERNELS = "bigsvm/compiled"
_COMPILING_S = 120  # of CPU, for what tests call of kernels that a mutant changed
_BATCH = 20  # mutants whose tests are run together without any of them, before the first
_FAILED = (1, 2)  # pytest's exit codes: a test failed; a file of tests could not be imported
_CRASHED = tuple(-number for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL))


@dataclass(frozen=True)
class Mutant:
    """One fault.

    file, old, new : where it is planted, the text that it takes away (which occurs once), what it puts there
    tests : what pytest is given;  wrong : what goes wrong in silence
    equivalent : why no test could tell, of a mutant that changes nothing; else ''
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    wrong: str
    equivalent: str = ""

    def planted(self, text: str) -> str:
        """The text of its file with the fault.  Raises ValueError where that cannot be."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.name}: its old text occurs {found} times in {self.file}, not once")
        return text.replace(self.old, self.new)

    def digest(self, root: Path) -> str:
        """Stands for the mutant, its file and its tests."""
        hasher = hashlib.sha256(json.dumps(asdict(self)).encode())
        for name in (self.file, *(test.partition("::")[0] for test in self.tests)):
            hasher.update((root / name).read_bytes())
        return hasher.hexdigest()[:16]


def read_mutants() -> list[Mutant]:
    """All that are listed.  Raises ValueError where two have one name."""
    found = []
    for table in sorted(TABLES.glob("*.toml")):
        for entry in tomllib.loads(table.read_text())["mutant"]:
            found.append(Mutant(**{**entry, "tests": tuple(entry["tests"])}))
    (name, times), *_ = Counter(mutant.name for mutant in found).most_common(1)
    if times > 1:
        raise ValueError(f"{times} mutants have the name {name}")
    return found


def faults_of(mutant: Mutant) -> str:
    """Why a mutant cannot be planted, or tells nothing; '' where all is well."""
    try:
        planted = mutant.planted((ROOT / mutant.file).read_text())
        compile(planted, mutant.file, "exec")
    except (OSError, ValueError, SyntaxError) as error:
        return f"{mutant.name}: {error}"
    if mutant.old == mutant.new or not mutant.wrong:
        return f"{mutant.name}: it changes nothing, or does not say what goes wrong"
    for test in mutant.tests:
        file, _, names = test.partition("::")
        name = names.partition("[")[0].rpartition("::")[2]
        if not (ROOT / file).exists() or (name and f"def {name}(" not in (ROOT / file).read_text()):
            return f"{mutant.name}: there is no test {test}"
    return "" if mutant.tests else f"{mutant.name}: it names no test"


class Tree:
    """A copy of the checkout in which tests run, with a cache of compiled kernels of its own.

    The cache knows kernels by the content of all files of theirs: what was compiled with a mutant stays with it.
    """

    def __init__(self, work: Path, cpu_s: int) -> None:
        self.root, self.cache, self._results = work / "tree", work / "cache", work / "results.xml"
        self._temporary, self._cpu_s = work / "tmp", cpu_s
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(parents=True)
        ignored = shutil.ignore_patterns("__pycache__")
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self.root / name, ignore=ignored)
            else:
                shutil.copy2(source, self.root / name)

    @contextmanager
    def with_mutant(self, mutant: Mutant) -> Iterator[None]:
        """The mutant is in its file inside the block, and nowhere after it."""
        path = self.root / mutant.file
        text, status = path.read_text(), path.stat()
        try:
            path.write_text(mutant.planted(text))
            self._forget(path)
            yield
        finally:
            path.write_text(text)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            self._forget(path)

    def _forget(self, path: Path) -> None:
        """Let Python read the source: it tells by time and size whether what it compiled is old."""
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()

    def outcome(self, mutant: Mutant) -> tuple[str, float]:
        """(killed, survived or undecided, CPU seconds) of a mutant that is in its file."""
        # What the tests call of changed kernels is compiled first, and that is no part of what they may take.
        limit_s = self._cpu_s + (_COMPILING_S if mutant.file.startswith(KERNELS) else 0)
        code, cpu_s, said = self._pytest(mutant.tests, limit_s=limit_s)
        if code == 0:
            return "survived", cpu_s
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            return "undecided", cpu_s
        if code in _FAILED or code in _CRASHED:
            return "killed", cpu_s
        raise SystemExit(f"{mutant.name}: pytest ended with {code}\n{said}")

    def passes(self, tests: Sequence[str]) -> None:
        """Run tests where nothing is planted.  Raises SystemExit where one fails, or where all of one name skip."""
        code, _, said = self._pytest(tests, f"--junitxml={self._results}", limit_s=100 * self._cpu_s)
        if code != 0:
            raise SystemExit(f"the tests do not pass without any mutant:\n{said}")
        passed = set()
        for case in ElementTree.parse(self._results).iter("testcase"):
            if case.find("skipped") is None:
                file = case.get("classname", "").replace(".", "/") + ".py"
                name = case.get("name", "")
                passed |= {file, f"{file}::{name}", f"{file}::{name.partition('[')[0]}"}
        idle = sorted(set(tests) - passed)
        if idle:
            raise SystemExit(f"skipped, so that they tell nothing (is BIGSVM_TEST_DATA set?): {', '.join(idle)}")

    def _pytest(self, tests: Sequence[str], *more: str, limit_s: int) -> tuple[int, float, str]:
        """(exit code, CPU seconds, what was said)"""
        command = [
            *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
            *("--basetemp", str(self._temporary), *more, *tests),
        ]
        environment = {**os.environ, "PYTHONPATH": str(self.root), "BIGSVM_CACHE": str(self.cache)}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5)),
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        shutil.rmtree(self._temporary, ignore_errors=True)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return done.returncode, cpu_s, done.stdout[-3000:] + done.stderr[-1000:]


def run(
    mutants: list[Mutant], chosen: list[Mutant], work: Path, cpu_s: int, record: Path | None
) -> list[dict[str, object]]:
    """The outcomes of those chosen, in their order; what the record has is not found again, and stays in it.

    An outcome of older tests or another text stays beside its commit, too, until the mutant is run again.
    """
    known: dict[str, dict[str, object]] = {}
    former: dict[str, dict[str, object]] = {}
    if record is not None and record.exists():
        lines = placed(json.loads(record.read_text())["rows"], mutants)
        known, former = {str(line["digest"]): line for line in lines}, {str(line["name"]): line for line in lines}
    digests = {mutant.name: mutant.digest(ROOT) for mutant in mutants}
    waiting = [mutant for mutant in chosen if digests[mutant.name] not in known]
    if waiting:
        tree = Tree(work, cpu_s)
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        for number, mutant in enumerate(waiting, 1):
            if number % _BATCH == 1:
                batch = waiting[number - 1 : number - 1 + _BATCH]
                tree.passes(sorted({test for other in batch for test in other.tests}))
            with tree.with_mutant(mutant):
                outcome, seconds = tree.outcome(mutant)
            if outcome == "survived" and mutant.equivalent:
                outcome = "equivalent"
            sys.stderr.write(f"{number} of {len(waiting)}: {mutant.name}: {outcome}, {seconds:.0f} s\n")
            line = {"name": mutant.name, "file": mutant.file, "outcome": outcome, "cpu_s": round(seconds, 1)}
            digest = digests[mutant.name]
            known[digest] = {**line, "commit": commit.stdout.strip(), "digest": digest}
            if record is not None:
                rows = [known.get(digest, former.get(name)) for name, digest in digests.items()]
                write(record, [row for row in rows if row is not None])
    return [known[digests[mutant.name]] for mutant in chosen]


def write(path: Path, rows: list[dict[str, object]]) -> None:
    """The record: what was found, at which commits, and how to make it."""
    commits = ", ".join(sorted({str(row["commit"]) for row in rows}))
    document = {"commit": commits, "command": f"scripts/mutation.py --json {path}", "rows": rows}
    path.write_text(json.dumps(document, indent=1) + "\n")


def placed(rows: list[dict[str, object]], mutants: list[Mutant]) -> list[dict[str, object]]:
    """Lines of a record with the files that their mutants are in now, and without lines of mutants that are gone."""
    files = {mutant.name: mutant.file for mutant in mutants}
    return [{**row, "file": files[str(row["name"])]} for row in rows if row["name"] in files]


def misplaced(mutants: list[Mutant]) -> bool:
    """Whether the record names files that its mutants are not in; False where there is no record."""
    rows = json.loads(RECORD.read_text())["rows"] if RECORD.exists() else []
    return placed(rows, mutants) != rows


def report(mutants: list[Mutant], rows: list[dict[str, object]]) -> str:
    """How many of each outcome by part of the program, then those that were not killed, with a reason."""
    parts: dict[str, Counter[str]] = {}
    for row in rows:
        parts.setdefault(re.sub(r"^bigsvm/|/[^/]*$", "", str(row["file"])), Counter())[str(row["outcome"])] += 1
    kinds = ("killed", "survived", "undecided", "equivalent")
    lines = ["| part | " + " | ".join(kinds) + " |", "|---|" + "---|" * len(kinds)]
    for part in sorted(parts):
        lines.append(f"| {part} | " + " | ".join(str(parts[part][kind]) for kind in kinds) + " |")
    total = sum(parts.values(), Counter())
    lines.append("| all | " + " | ".join(str(total[kind]) for kind in kinds) + " |")
    for mutant, row in zip(mutants, rows, strict=True):
        if row["outcome"] != "killed":
            lines.append(f"\n{row['outcome']}: {mutant.name} ({mutant.file}): {mutant.equivalent or mutant.wrong}")
    decided = total["killed"] + total["survived"]
    share = total["killed"] / decided if decided else 0.0
    lines.append(f"\n{total['killed']} of {decided} decided mutants killed ({100 * share:.1f} %)")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Plant, run, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", metavar="PATTERN", default="*", help="names, such as 'proof-*'")
    add("--cpu", type=int, default=90, metavar="SECONDS", help="of a process of a mutant's tests [%(default)s]")
    add("--work", type=Path, help="folder for the copy; what is compiled there is of use again [a temporary one]")
    add("--json", type=Path, help="file of the outcomes; what it has is not run again")
    add("--check", action="store_true", help="only look whether every mutant can be planted")
    add("--places", action="store_true", help="only write into the record where its mutants are now")
    add("--smoke", action="store_true", help="two mutants")
    options = parser.parse_args()
    mutants = read_mutants()
    faults = [fault for fault in map(faults_of, mutants) if fault]
    if faults:
        raise SystemExit("\n".join(faults))
    if options.places:
        document = json.loads(RECORD.read_text())
        document["rows"] = placed(document["rows"], mutants)
        RECORD.write_text(json.dumps(document, indent=1) + "\n")
        return
    if options.check:
        if misplaced(mutants):
            raise SystemExit(f"{RECORD.name} names files that its mutants have left: scripts/mutation.py --places")
        sys.stdout.write(f"{len(mutants)} mutants can be planted\n")
        return
    chosen = [mutant for mutant in mutants if fnmatch.fnmatch(mutant.name, options.only)]
    if options.smoke:
        chosen = [mutant for mutant in mutants if mutant.name in SMOKE]
    if not chosen:
        raise SystemExit(f"no mutant has such a name: {options.only}")
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        rows = run(mutants, chosen, (options.work or Path(folder)).resolve(), options.cpu, options.json)
    sys.stdout.write(report(chosen, rows))
    if any(row["outcome"] == "survived" for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
