"""Candidates that must never become current."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bigsvm.errors import BigSVMError
from bigsvm.files.atomic import file_digest
from bigsvm.model import versions as registry
from bigsvm.model.model_files import document_text
from nightly.rows import job, night, store, tree
from pipelines import journal, steps
from pipelines.config import Job

_MET_BY_METRICS = "min_accuracy = 0.8\nmax_drop = 0.02\nrecertify = false"
_OTHER_C = 0.5
_OTHERS = {"flipped": (20, 0.9), "noise": (20, 0.5), "wide": (23, 0.1), "narrow": (17, 0.1)}
"""Name -> (features, share of labels that are wrong) of other rows."""
_ARRAYS = ("coef.npy", "intercept.npy", "alpha.npy")


def bad_candidates(work: Path, count: int, seed: int) -> str:
    """Offer `count` bad candidates, of all kinds in turn; a sentence.  SystemExit where one comes through."""
    rng = np.random.default_rng([seed, 1])
    read = _first_night(work)
    before, offered = tree(read.registry / "versions"), Counter[str]()
    refused_by = Counter[str]()
    kinds = list(_KINDS.items())
    for number in range(count):
        name, kind = kinds[number % len(kinds)]
        candidate = work / f"candidate-{number}"
        kind(work, candidate, rng)
        refused_by[_offer(work, candidate, name)] += 1
        offered[name] += 1
        now = tree(read.registry / "versions")
        if now != before or registry.current_version(read.registry) != 1:
            raise SystemExit(f"{name}, candidate {number}: the registry is not what it was")
        shutil.rmtree(candidate)
    gates = ", ".join(f"{gate} {n}" for gate, n in sorted(refused_by.items()))
    return f"{count} candidates of {len(offered)} kinds, 0 promoted (refused by {gates})"


def _first_night(work: Path) -> Job:
    """A promotion, and a good candidate with another C, of which the bad ones are made."""
    store(work / "train.zarr", 1, 400)
    store(work / "holdout.zarr", 2, 400)
    read = job(work, _MET_BY_METRICS)
    if night(read)["status"] != "promoted":
        raise SystemExit("the first night did not promote")
    other = job(work, _MET_BY_METRICS, c=_OTHER_C)
    found = steps.detect(other)
    candidate = steps.fit(other, found).path
    if not steps.judge(other, found, candidate).passed:
        raise SystemExit("the good candidate is refused")
    shutil.copytree(candidate, work / "good")
    return read


def _other_model(work: Path, name: str) -> None:
    """A model of other rows, as a night of its own promotes it."""
    n_features, flipped = _OTHERS[name]
    folder = work / name
    folder.mkdir()
    store(folder / "train.zarr", 5, 400, n_features, flipped)
    store(folder / "holdout.zarr", 6, 400, n_features, flipped)
    night(job(folder))
    shutil.copytree(folder / "registry" / "current", work / f"{name}.model")
    for file in (work / f"{name}.model").iterdir():
        file.chmod(0o644)


def _offer(work: Path, candidate: Path, name: str) -> str:
    """Offer it to a whole night and to promote; the gate that refused it."""
    # The job of honest but poor models must refuse by what it measures; all others by files and proof as well.
    read = job(work, _MET_BY_METRICS if name.startswith("worse") else "", c=_OTHER_C)
    found = steps.detect(read)
    place = read.folder / journal.MODEL
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(candidate, place)
    with contextlib.suppress(OSError):  # without a model.json nothing can be noted of it
        journal.note_candidate(read.folder, found.problem, "converged", {"relative_gap": 0.0})
    verdict = steps.judge(read, found, place)
    if verdict.passed:
        raise SystemExit(f"{name}: it passed every gate")
    with contextlib.suppress(BigSVMError):
        steps.promote(read, found, place, verdict)
        raise SystemExit(f"{name}: promoted without having passed")
    if (place / "model.json").exists():
        document = night(read)
        if document["status"] != "refused" or document["fitted"] != "kept":
            raise SystemExit(f"{name}: the night ended {document['status']}")
    if not name.startswith("worse") and name not in _NOT_SEEN_IN_FILES:
        with contextlib.suppress(BigSVMError):
            registry.promote(read.registry, candidate)
            raise SystemExit(f"{name}: promote took it")
    return verdict.refusals[0].name


def _copy(work: Path, candidate: Path, source: str = "good") -> Path:
    if source != "good" and not (work / source).exists():
        _other_model(work, source)
    shutil.copytree(work / (source if source == "good" else f"{source}.model"), candidate)
    return candidate


def _renew(candidate: Path, name: str) -> None:
    """Digests as somebody who knows the format would make them."""
    document = json.loads((candidate / "model.json").read_text())
    document["digests"][name] = file_digest(candidate / name)
    (candidate / "model.json").write_text(document_text(document))


def _not_finite(work: Path, candidate: Path, rng: np.random.Generator) -> None:
    name = _ARRAYS[rng.integers(2)]
    _spoil(_copy(work, candidate), name, rng, rng.choice([np.nan, np.inf, -np.inf]))


def _not_finite_duals(work: Path, candidate: Path, rng: np.random.Generator) -> None:
    _spoil(_copy(work, candidate), "alpha.npy", rng, rng.choice([np.nan, np.inf, -np.inf]))


def _spoil(candidate: Path, name: str, rng: np.random.Generator, value: float) -> None:
    array = np.load(candidate / name)
    array.flat[rng.choice(array.size, min(array.size, int(rng.integers(1, 4))), replace=False)] = value
    np.save(candidate / name, array)
    _renew(candidate, name)


def _empty_file(work: Path, candidate: Path, rng: np.random.Generator) -> None:
    name = rng.choice([*_ARRAYS, "model.json"])
    (_copy(work, candidate) / name).write_bytes(b"")
    if name != "model.json" and rng.random() < 0.5:
        _renew(candidate, name)


def _empty_arrays(work: Path, candidate: Path, rng: np.random.Generator) -> None:
    name = _ARRAYS[rng.integers(2)]
    array = np.load(_copy(work, candidate) / name)
    np.save(candidate / name, array[:0] if rng.random() < 0.5 else array[..., :0])
    _renew(candidate, name)


def _of_zeros(work: Path, candidate: Path, rng: np.random.Generator) -> None:
    _copy(work, candidate)
    for name in _ARRAYS:
        np.save(candidate / name, np.zeros_like(np.load(candidate / name)))
        _renew(candidate, name)


def _lying(work: Path, candidate: Path, rng: np.random.Generator) -> None:
    coef = np.load(_copy(work, candidate) / "coef.npy")
    np.save(candidate / "coef.npy", coef + 0.3 * np.abs(coef).max() * rng.standard_normal(coef.shape))
    _renew(candidate, "coef.npy")


def _turned(work: Path, candidate: Path, rng: np.random.Generator) -> None:
    coef = np.load(_copy(work, candidate) / "coef.npy")
    np.save(candidate / "coef.npy", -coef * rng.uniform(0.5, 2.0))
    _renew(candidate, "coef.npy")


def _torn(work: Path, candidate: Path, rng: np.random.Generator) -> None:
    path = _copy(work, candidate) / rng.choice([*_ARRAYS, "model.json"])
    with open(path, "r+b") as file:
        file.truncate(int(rng.integers(path.stat().st_size)))


def _changed_bit(work: Path, candidate: Path, rng: np.random.Generator) -> None:
    path = _copy(work, candidate) / _ARRAYS[rng.integers(3)]
    content = bytearray(path.read_bytes())
    content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)


def _missing(work: Path, candidate: Path, rng: np.random.Generator) -> None:
    (_copy(work, candidate) / rng.choice([*_ARRAYS, "model.json"])).unlink()


def _from(source: str) -> Callable[[Path, Path, np.random.Generator], None]:
    def made(work: Path, candidate: Path, rng: np.random.Generator) -> None:
        _copy(work, candidate, source)

    return made


_KINDS: dict[str, Callable[[Path, Path, np.random.Generator], None]] = {
    "not finite": _not_finite,
    "duals not finite": _not_finite_duals,
    "empty file": _empty_file,
    "empty arrays": _empty_arrays,
    "all zeros": _of_zeros,
    "claims a gap it has not": _lying,
    "worse: turned round": _turned,
    "worse: of rows with wrong labels": _from("flipped"),
    "worse: of noise": _from("noise"),
    "torn": _torn,
    "a changed bit": _changed_bit,
    "a file missing": _missing,
    "more features": _from("wide"),
    "fewer features": _from("narrow"),
}
_NOT_SEEN_IN_FILES = ("all zeros", "claims a gap it has not")
"""Kinds that only a proof finds out: `bigsvm promote` by hand asks for none."""
