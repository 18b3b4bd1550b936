"""A dask client of the user's own: tasks run on its workers, it stays open, and the bits are those of no cluster."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from distributed import Client
from scipy import sparse

import bigsvm
from bigsvm.compiled.cache.stamp import difference, digest_of, loaded_digest, versions, written_since
from bigsvm.errors import DataError, Interrupted, UsageError
from bigsvm.events import TrafficCounted
from bigsvm.run.execute.dask_checks import check_rows_and_room, check_versions, checked
from bigsvm.run.execute.dask_shards import Begun, ShardVerbs
from bigsvm.run.execute.traffic import Traffic
from bigsvm.solvers.shard_tasks import forget_task
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from bigsvm.testing.problems import random_problem

OPTIONS: dict[str, Any] = {"solver": "newton-cg", "C": 10.0, "tol": 1e-6, "memory": "64MiB"}

D = 30_000
SHARDS, ROUNDS = 4, 8
VECTOR = 4 * (D + 1)  # w and its change are float32
SMALL = 4000 * ROUNDS * SHARDS  # what else a pass may move: a few numbers and names a shard and round


@pytest.fixture
def client(cluster: str) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as found:
        yield found


@pytest.mark.cluster
def test_a_client_that_is_given_or_current_gives_the_bytes_of_none(streaming: None, client: Client) -> None:
    X, y = random_problem(200, 5, seed=13, n_classes=3)
    here = bigsvm.fit((X, y), threads=1, **OPTIONS)
    given = bigsvm.fit((X, y), client=client, **OPTIONS)
    with client.as_current():
        current = bigsvm.fit((X, y), scheduler="dask", **OPTIONS)
    for there in (given, current):
        np.testing.assert_array_equal(there.model.coef, here.model.coef)
        assert there.figures["dual_objective"] == here.figures["dual_objective"]
    assert client.submit(abs, -3).result() == 3  # it is the user's, and still open


@pytest.mark.cluster
def test_a_worker_with_another_version_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = random_problem(30, 3, seed=1)
    ours = digest_of(Path(bigsvm.__file__).parent)[:12]  # all files: not only compiled loops change a model
    for name, version in (("bigsvm (its sources)", ours), ("numpy", np.__version__)):
        with monkeypatch.context() as patch:
            patch.setattr("bigsvm.run.execute.dask_checks.versions", lambda name=name: {**versions(), name: "0.1"})
            with pytest.raises(UsageError, match=re.escape(f"has {name} {version}, and the caller 0.1")):
                bigsvm.fit((X, y), client=client)


@pytest.fixture
def upgraded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process loaded bigsvm before its files were written."""
    loaded_digest.cache_clear()
    monkeypatch.setattr("bigsvm.compiled.cache.stamp.LOADED_AT", 1)
    yield
    loaded_digest.cache_clear()


def test_a_caller_that_was_upgraded_underneath_is_refused(upgraded: None) -> None:
    """It had the digest of its new files, as a worker that began later has, while it ran the former ones."""
    with pytest.raises(UsageError, match="bigsvm was changed on disk after this process had loaded it") as caught:
        check_versions(None)
    assert caught.value.hint.startswith("start this process again")
    assert difference(versions()) == ""  # in this process
    assert "changed after it was loaded" in difference({**versions(), "bigsvm (its sources)": "0123456789ab"})


@pytest.mark.parametrize(
    "change", ["none", "edited", "added", "touched long ago", "upgraded from a cache", "no source", "of a clock ahead"]
)
def test_sources_that_changed_since_they_were_loaded_are_noticed(change: str, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    sources = [tmp_path / "__init__.py", tmp_path / "deep" / "a.py"]
    for source in sources:
        source.write_text("x = 1")
        os.utime(source, (1_000, 1_000))
    loaded_at, written_at = 2_000 * 10**9, 1_000 * 10**9
    if change == "edited":
        os.utime(sources[1], (3_000, 3_000))
    elif change == "added":
        (tmp_path / "deep" / "b.py").touch()
    elif change == "touched long ago":
        os.utime(sources[1], (1_500, 1_500))
    elif change == "upgraded from a cache":
        for source in sources:
            os.utime(source, (900, 900))
    elif change == "of a clock ahead":
        os.utime(sources[1], (1e10, 1e10))
    elif change == "no source":
        written_at = 0
    noticed = change in ("edited", "added", "upgraded from a cache")
    assert written_since(tmp_path, loaded_at, written_at) == noticed


@pytest.mark.cluster
@pytest.mark.parametrize("shards", [1, 2])
def test_a_worker_that_joins_with_another_version_stops_the_fit(
    shards: int, streaming: None, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not there yet when all are asked: each task asks again, over blocks and on shards."""
    monkeypatch.setattr("bigsvm.run.execute.dask_shards.versions", lambda: {**versions(), "numpy": "0.1"})
    with pytest.raises(Interrupted, match=r"worker tcp://[\d.:]+ joined, and has numpy \S+, and the caller 0.1"):
        bigsvm.fit(random_problem(200, 5, seed=13), client=client, shards=shards, **OPTIONS)


def test_every_task_asks_for_the_version() -> None:
    sent: list[Any] = []

    class Sending:
        def submit(self, *given: Any, **how: Any) -> Any:
            sent.append(given[:2])
            return SimpleNamespace(status="pending")

        def scheduler_info(self, n_workers: int) -> dict[str, Any]:
            return {"workers": {"a": {}, "b": {}}}

    verbs = ShardVerbs(Sending(), 3, Traffic())
    verbs.total(verbs.on_shards(forget_task, range(5), verbs.publish(1.0)))
    for share in (1.0, Begun(forget_task, [], verbs.publish(1.0), [], [], 0.0)):
        verbs.shared(abs, share)
    assert len(sent) == 11  # 2 values, 5 shards, 2 sums, and 2 shares
    assert all(what is checked and ours == versions() for what, ours in sent)


@pytest.mark.cluster
def test_a_worker_with_other_rows_under_the_name_is_refused(client: Client, tmp_path: Path) -> None:
    first, second = tmp_path / "first.zarr", tmp_path / "second.zarr"
    ingest(random_problem(50, 3, seed=1), first)
    shutil.copytree(first, second)
    rows, others = open_store(str(first)), open_store(str(second))
    shutil.rmtree(second)
    ingest(random_problem(60, 3, seed=2), second)
    with pytest.raises(DataError, match=f"{second}: worker tcp://"):
        check_rows_and_room(client, others, None, 1)
    check_rows_and_room(client, rows, tmp_path, 1 << 20)


@pytest.mark.cluster
@pytest.mark.usefixtures("streaming")
def test_a_pass_moves_w_and_its_change_and_no_vector_of_rows(client: Client) -> None:
    rng = np.random.default_rng(5)
    X = sparse.random_array((400, D), density=2e-4, rng=rng, dtype=np.float32, format="csr")
    rows = ArrayRows(X, np.where(rng.normal(size=400) > 0, 1, -1))
    seen: list[Any] = []
    options: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "C": 0.1, "tol": 1e-3, "max_passes": 6}
    before = moved_by(client)
    result = bigsvm.fit(rows, shards=SHARDS, rounds_per_pass=ROUNDS, client=client, emit=seen.append, **options)
    moved = moved_by(client) - before
    passes = [event for event in seen if isinstance(event, TrafficCounted)]
    assert len(passes) >= 3
    for event in passes:
        # A save, and where a proof rides the round that brings its sums, are more than those of training.
        assert ROUNDS <= event.rounds <= ROUNDS + 2
        assert event.workers == 2
        assert event.worker_bytes <= 1.4 * ROUNDS * 2 * VECTOR + SMALL
        assert event.worker_bytes_sum >= 2 * ROUNDS * VECTOR  # w came to both of them
        through_client = event.published_bytes + event.gathered_bytes
        most = event.rounds * 2 * VECTOR + VECTOR + SMALL  # with the point of a proof that rides, told once
        assert ROUNDS * 2 * VECTOR <= through_client <= most
        assert event.task_bytes <= SMALL
        assert event.rounds_replayed == 0
    # The first pass brings staging along, one that follows a proof alpha of all rows.
    assert sum(event.row_bytes == 0 for event in passes) >= len(passes) - 3
    whole = result.figures["cluster"]
    assert whole["shards_made"] == SHARDS
    # Workers count what they hand to others by themselves: w to one of the two, sums, and those of the client.
    assert 0.9 * moved <= whole["worker_bytes_sum"] - whole["published_bytes"] + whole["gathered_bytes"] <= 1.1 * moved


def moved_by(client: Client) -> int:
    """Bytes that workers have handed to others and to the scheduler, as dask counts them."""
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


def test_without_a_client_it_says_so() -> None:
    X, y = random_problem(30, 3, seed=1)
    with pytest.raises(UsageError, match="no dask client"):
        bigsvm.fit((X, y), scheduler="dask")


def test_a_client_and_another_scheduler_are_refused() -> None:
    X, y = random_problem(30, 3, seed=1)
    with pytest.raises(UsageError, match="client and scheduler='threads' exclude each other"):
        bigsvm.fit((X, y), client=object(), scheduler="threads")


@pytest.mark.cluster
def test_a_kernel_fit_sends_its_scans_and_its_proof(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Support vectors are published, and found in the shares; `certify` runs on the workers, too."""
    monkeypatch.setattr("bigsvm.solvers.kernel.values.data._CHUNK", 90)  # several blocks of few rows
    monkeypatch.setattr("bigsvm.solvers.kernel.smo.active_set._SMALL", 0)
    monkeypatch.setattr("bigsvm.solvers.kernel.values.sent_rows.WORTH_SENDING", 0)
    rows = random_problem(600, 5, seed=77, noise=0.1)
    options: dict[str, Any] = {"kernel": "rbf", "gamma": 0.4, "C": 3.0, "memory": "64MiB"}
    found, proofs = [], []
    for how in ({"scheduler": "serial"}, {"client": client}):
        result, model = bigsvm.fit(rows, **options, **how), tmp_path / f"m{len(found)}"
        result.save_model(model)
        found.append({path.name: path.read_bytes() for path in model.iterdir()})
        with client.as_current():
            proof = bigsvm.certify(model, rows, scheduler="dask" if "client" in how else "serial", memory="64MiB")
        proofs.append({name: proof[name] for name in ("duality_gap", "objective", "dual_objective", "violation")})
    assert result.figures["cluster"]["published_bytes"] > 0
    assert found[0] == found[1]
    assert proofs[0] == proofs[1]
