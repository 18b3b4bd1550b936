#!/usr/bin/env python3
"""Runs cases, one after another, each named on a line of standard input by its seed; answers a JSON line a case.

The only part of the check that imports bigsvm.  Fits run in this process, so that nothing is loaded or compiled twice,
under a limit of CPU seconds: a fit that does not end takes the process with it (SIGXCPU), and whoever started it knows
by the last `begin` line which fit that was.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

import bigsvm
from bigsvm.cli.main import run as command_line
from bigsvm.compiled import cache_folder
from bigsvm.errors import BigSVMError, PlanRefused
from bigsvm.run.fit import sizes
from bigsvm.store.formats.opener import open_store
from cross.case import Case, Step, make_case
from cross.judge import Finding, Outcome, judge_fit, judge_outcome
from cross.judge_joint import judge_joint
from cross.judge_nu import foresee_nu, judge_nu, refused_rightly
from cross.judge_use import judge_certify, judge_scores
from cross.models import asked, lambda_of
from cross.options import arguments
from cross.saved import read_saved
from cross.written import as_arrays, weights, write, write_unlabelled

_BESIDE = 600  # CPU seconds that judging may take: longdouble is slow, and it ends
_SMALL_BLOCKS = {"_COPY_BLOCK": 600, "BLOCK_BYTES": 6000}


class Bench:
    """One case in a folder of its own."""

    def __init__(self, case: Case, folder: Path, cpu_s: float) -> None:
        self.case, self.folder, self.cpu_s = case, folder, cpu_s
        self.arrays: Any = None

    def step(self, number: int, step: Step) -> tuple[Outcome, list[Finding]]:
        """Fit, certify, predict; what is not as it must be."""
        model = self.folder / f"m{number}.model"
        with _limited(self.cpu_s):
            outcome = self._fit_arrays(step, model) if self.case.form == "arrays" else self._fit_store(step, model)
        faulty = self.case.fault and (self.case.fault != "negative weight" or step.weight)  # weights may not be used
        shaped = step.options.nu is not None and not faulty
        problem = asked(self.case, step) if shaped or outcome.code in (0, 4) else None
        if shaped and problem is not None:
            foresee_nu(step, problem)
            if refused_rightly(step, problem, outcome):
                return outcome, []
        found = judge_outcome(self.case, step, outcome)
        if found or outcome.code not in (0, 4):
            return outcome, found
        saved = read_saved(model)
        assert problem is not None
        with np.errstate(all="ignore"):
            judge = judge_nu if shaped else judge_fit if problem.joint is None else judge_joint
            found, error = judge(self.case, step, problem, outcome, saved)
            if any(finding.kind == "model" for finding in found):
                return outcome, found
            found += judge_certify(step, outcome, self._certify(step, model), error)
            scores, labels = self._predict(model)
            found += judge_scores(problem, step, saved, scores, labels)
        return outcome, found

    # ---- by the command line

    def _fit_store(self, step: Step, model: Path) -> Outcome:
        store = str(self._store(step))
        columns = self._columns(step)
        flags = [*columns, *self._flags(step)]
        if self.case.stream in ("least", "unstaged"):
            planned = _bigsvm("plan", store, *flags, "--memory", "1GiB")
            if planned.code:
                return planned
            flags += ["--memory", str(planned.document["min_memory_bytes"])]
        with self._blocks():
            return _bigsvm("fit", store, *flags, "--scratch", str(self.folder / "scratch"), "-o", str(model))

    def _store(self, step: Step) -> Path:
        path = write(self.case, step, self.folder)
        if self.case.form != "text":
            return path
        store = self.folder / "ingested.zarr"
        if not store.exists():
            done = _bigsvm("ingest", str(path), str(store), "--n-features", str(self.case.X.shape[1]))
            if done.code:
                raise _Refused(done)
        return store

    def _columns(self, step: Step) -> list[str]:
        if self.case.form.startswith("zarr"):
            prefix = "obs/" if self.case.seed % 2 else ""
            names = ["--label", prefix + step.label]
            return names + (["--weight", prefix + step.weight] if step.weight else [])
        if self.case.form == "text":
            return []
        return ["--label", step.label] + (["--weight", step.weight] if step.weight else [])

    def _flags(self, step: Step) -> list[str]:
        flags = []
        for name, value in arguments(step.options).items():
            if name == "shrinking":
                flags.append("--no-shrinking")
            elif value is True:
                flags.append("--" + name.replace("_", "-"))
            else:
                flags += ["--" + name.replace("_", "-"), str(value)]
        cost = step.options.C
        if step.options.has_cost:
            flags += ["--lambda", repr(lambda_of(cost, len(self.case.X)))] if step.options.lam else ["--c", repr(cost)]
        if step.class_weight is not None:
            given = step.class_weight
            pairs = [] if isinstance(given, str) else [f"{name}={weight}" for name, weight in _by_name(given).items()]
            flags += ["--class-weight", given if isinstance(given, str) else ",".join(pairs)]
        if step.label_map:
            flags += ["--label-map", ",".join(f"{name}={other}" for name, other in step.label_map.items())]
        if step.positive is not None:
            flags += [f"--positive={step.positive}"]
        flags += ["--warm-start", str(self._earlier())] if step.warm and self._earlier().exists() else []
        return [*flags, *(["--stage", "none"] if self.case.stream == "unstaged" else [])]

    def _earlier(self) -> Path:
        """The model of the first step, where it gave one."""
        return self.folder / "m0.model"

    # ---- by arrays

    def _fit_arrays(self, step: Step, model: Path) -> Outcome:
        options = {**arguments(step.options), "scratch": str(self.folder / "scratch")}
        cost = step.options.C
        if step.options.has_cost:
            options |= {"lam": lambda_of(cost, len(self.case.X))} if step.options.lam else {"C": cost}
        if step.class_weight is not None:
            given = step.class_weight
            options["class_weight"] = given if isinstance(given, str) else _by_name(given)
        if self.case.stream == "unstaged":
            options["stage"] = "none"
        if step.warm and self._earlier().exists():
            options["warm_start"] = str(self._earlier())
        try:
            with warnings.catch_warnings(), self._blocks():
                warnings.simplefilter("ignore")
                rows = self._rows(step)
                if self.case.stream in ("least", "unstaged"):
                    options["memory"] = _least_memory(rows, options)
                result = bigsvm.fit(rows, **options)
                result.save_model(model)
        except BigSVMError as error:
            return Outcome(error.code, "error", {"message": str(error)})
        except Exception as error:  # whatever it is, it is a finding: exit 1 of the command line
            return Outcome(1, "error", {"message": f"{type(error).__name__}: {error}"})
        document = json.loads(json.dumps(result.document(), default=_plain))
        result.close()
        return Outcome(result.exit_code(), result.status, document)

    def _rows(self, step: Step, named: bool = True) -> Any:
        """named : by the names that the step gives labels; a model knows them itself"""
        if self.arrays is None:
            self.arrays = as_arrays(self.case)
        name = step.label
        y = self.case.targets[name.removeprefix("target_")] if step.options.regression else self.case.labels[name]
        given = (self.arrays, y) if step.weight is None else (self.arrays, y, weights(self.case, step.weight))
        if named and (step.label_map or step.positive is not None):
            return open_store(given, label_map=step.label_map, positive=step.positive)
        return open_store(given, task="regression") if step.options.regression else given

    # ---- afterwards

    def _certify(self, step: Step, model: Path) -> Outcome:
        if self.case.form != "arrays":
            return _bigsvm("certify", str(model), str(self._store(step)), *self._columns(step))
        try:
            return Outcome(
                0, "ok", json.loads(json.dumps(bigsvm.certify(model, self._rows(step, named=False)), default=_plain))
            )
        except BigSVMError as error:
            return Outcome(error.code, "error", {"message": str(error)})

    def _predict(self, model: Path) -> tuple[np.ndarray, list[Any]]:
        if self.case.form == "arrays":
            loaded = bigsvm.load_model(model)
            scores = loaded.decision_function(self.arrays)
            return scores.reshape(len(self.case.X), -1), loaded.predict(self.arrays).tolist()
        out = self.folder / f"{model.name}.jsonl"
        done = _bigsvm("predict", str(model), str(write_unlabelled(self.case, self.folder)), "-o", str(out))
        if done.code:
            raise _Refused(done)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        scores = np.array([line["score"] for line in lines], np.float64).reshape(len(lines), -1)
        return scores, [line["label"] for line in lines]

    @contextlib.contextmanager
    def _blocks(self) -> Iterator[None]:
        """Small data streams as large data does: many tiny blocks, none of them kept in memory."""
        if self.case.stream != "blocks":
            yield
            return
        with contextlib.ExitStack() as stack:
            for name, value in _SMALL_BLOCKS.items():
                stack.enter_context(mock.patch.object(sizes, name, value))
            stack.enter_context(mock.patch.object(sizes.Sizes, "resident_from", return_value=1 << 50))
            yield


class _Refused(Exception):
    """A command beside the fit was refused."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.document.get("message"))
        self.outcome = outcome


def _bigsvm(*command: str) -> Outcome:
    """A command in this process."""
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = command_line([*command, "--json", "--quiet"])
    try:
        document = json.loads(out.getvalue())
    except ValueError:
        return Outcome(code, "no document", {"message": f"standard output is not a document; {said.getvalue()[-300:]}"})
    inner = document.get("result") or document.get("error") or {}
    return Outcome(code, document.get("status", ""), inner)


def _least_memory(rows: Any, options: dict[str, Any]) -> int:
    try:
        bigsvm.fit(rows, **{**options, "memory": "64KiB"})
    except PlanRefused as error:
        least = error.min_memory_bytes
    assert least is not None
    return least


def _by_name(weights: dict[Any, float]) -> dict[str, float]:
    """Class weights by the labels' names; True is 1."""
    return {str(int(label) if isinstance(label, bool) else label): weight for label, weight in weights.items()}


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)


@contextlib.contextmanager
def _limited(cpu_s: float) -> Iterator[None]:
    """At most so many CPU seconds from here: then the kernel ends this process."""
    _limit(cpu_s)
    yield
    _limit(_BESIDE)


def _limit(cpu_s: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + cpu_s + 1), hard))


def run_case(seed: int, cpu_s: float, work: Path, say: Any) -> dict[str, Any]:
    """Everything of a case; `say` tells which fit begins."""
    case, found, seen = make_case(seed), [], Counter[str]()
    with tempfile.TemporaryDirectory(dir=work) as name:
        bench = Bench(case, Path(name), cpu_s)
        for number, step in enumerate(case.steps):
            about = describe(case, step)
            say({"begin": seed, "step": number, "about": about})
            try:
                outcome, findings = bench.step(number, step)
            except _Refused as error:
                outcome, findings = error.outcome, judge_outcome(case, step, error.outcome)
            named = {
                "solver": step.options.solver, "kernel": step.options.kernel["name"], "loss": step.options.loss,
                "bias": step.options.bias, "form": case.form, "stream": case.stream,
                "labels": "renamed" if step.label_map or step.positive is not None else "as they are",
                "start": "of a model" if step.warm else "fresh",
                "rule": step.options.multi_class or "none",
                "shards": step.options.shards,
                "stop": step.options.stop, "by": outcome.document.get("solver"),
                "status": outcome.code if outcome.status == "error" else outcome.status,
            }  # fmt: skip
            seen.update(f"{name} {value}" for name, value in named.items())
            first = {finding.kind: finding for finding in reversed(findings)}  # of several models one will do
            found += [{"step": number, "about": about, "kind": f.kind, "words": f.words} for f in first.values()]
            if "--verbose" in sys.argv:
                say({"outcome": outcome.code, "status": outcome.status, "document": outcome.document})
    return {"seed": seed, "fits": len(case.steps), "findings": found, "seen": seen}


def describe(case: Case, step: Step) -> str:
    """A fit in a line."""
    options = " ".join(f"{name}={value}" for name, value in arguments(step.options).items() if name not in ("threads",))
    extra = f" class_weight={step.class_weight}" if step.class_weight else ""
    weight = f" weight={step.weight}" if step.weight else ""
    cost = f" {'lambda~' if step.options.lam else 'C='}{step.options.C:.4g}"
    extra += f" label_map={step.label_map}" if step.label_map else ""
    extra += f" positive={step.positive}" if step.positive is not None else ""
    extra += " warm" if step.warm else ""
    return f"[{case.title}] label={step.label}{weight}{cost}{extra} {options}"


def _own_cache(folder: Path) -> None:
    """Side manifests of stores that are gone tomorrow go to `folder`; compiled kernels stay where they are."""
    compiled = cache_folder()
    (folder / "bigsvm").mkdir()
    (folder / "bigsvm" / compiled.name).symlink_to(compiled)
    os.environ["BIGSVM_CACHE"] = str(folder)


def main() -> None:
    """Cases by seed from standard input, until it ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing that is printed by accident can be taken for an answer

    def say(line: dict[str, Any]) -> None:
        answers.write(json.dumps(line) + "\n")

    work = Path(sys.argv[2])  # of whoever started this process, and deletes it when a fit has killed it
    _own_cache(work)
    for line in sys.stdin:
        say(run_case(int(line), float(sys.argv[1]), work, say))


if __name__ == "__main__":
    main()
