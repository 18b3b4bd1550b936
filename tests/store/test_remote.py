"""Rows behind http: servers that fail, lie, die and change, and what of secrets is left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.cli.main import run
from bigsvm.errors import DataError, MissingInput, OutputError, PlanRefused, ReadFailed, UsageError
from bigsvm.store.copy.copy_folder import copies_folder, copies_in, remove_copy
from bigsvm.store.remote.faults import Absent, Believed, Passing, Patience
from bigsvm.store.remote.names import with_secrets, without_secrets
from bigsvm.store.remote.settings import current, storing
from tests.store.remote_servers import (
    FORMS,
    SECRET,
    D,
    deadlines_over_without,
    has_rows,
    matrix,
    proxy,
    write_forms,
)

obstore = pytest.importorskip("obstore")


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows in every form; not to be changed."""
    folder = tmp_path_factory.mktemp("forms")
    write_forms(folder)
    return folder


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scratch folder of the test's own, and quick retries."""
    monkeypatch.setenv("BIGSVM_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr("bigsvm.store.remote.faults._FIRST_WAIT_S", 0.005)
    return tmp_path / "scratch"


@pytest.fixture
def served(forms: Path) -> Iterator[Callable[..., Any]]:
    """Makes a proxy before a web server that gives out the forms, or another folder."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def serve(folder: Path = forms, **faults: Any) -> Any:
            url = stack.enter_context(proxy.web_server(str(folder)))
            return stack.enter_context(proxy.Proxy(url, **faults).running())

        yield serve


def copies(scratch: Path) -> list[Path]:
    return copies_in(copies_folder(scratch))


@pytest.mark.parametrize("form", [form for form in FORMS if form != "folder"])
def test_every_form_has_the_rows_of_its_copy_at_home(form: str, forms: Path, served: Callable[..., Any]) -> None:
    here, there = bigsvm.open_store(str(forms / form)), bigsvm.open_store(f"{served().url}/{form}")
    assert has_rows(here)
    assert has_rows(there)
    if form not in ("v2.zarr", "v3.zarr"):  # of these, what a fit does not read is not copied
        assert here.identity == there.identity
    assert not any("/objects-" in warning for warning in there.warnings)


def test_models_and_content_are_the_same_to_the_byte(forms: Path, served: Callable[..., Any], tmp_path: Path) -> None:
    url = served().url
    for name, source in (("here", str(forms / "sealed.zarr")), ("there", f"{url}/sealed.zarr")):
        bigsvm.fit(source, loss="hinge", memory="64MiB").model.save(tmp_path / name)
    for file in (tmp_path / "here").iterdir():
        assert file.read_bytes() == (tmp_path / "there" / file.name).read_bytes(), file.name
    bigsvm.ingest([f"{url}/rows.svm.gz", f"{url}/rows.svm"], tmp_path / "twice.zarr")
    assert bigsvm.open_store(str(tmp_path / "twice.zarr")).n_samples == 2 * len(matrix()[1])
    found = bigsvm.ingest(f"{url}/rows.svm", tmp_path / "text.zarr", n_features=D)
    assert found["content_fingerprint"] == bigsvm.open_store(str(forms / "sealed.zarr")).content_fingerprint


def test_other_matrices_of_a_store_are_not_copied(served: Callable[..., Any], scratch: Path) -> None:
    server = served()
    assert has_rows(bigsvm.open_store(f"{server.url}/v3.zarr"))
    assert not any("layers" in path for path in server.seen if path.startswith("GET"))
    assert has_rows(bigsvm.open_store(f"{server.url}/v3.zarr", matrix="layers/twice"), 2 * matrix()[0])
    assert len(copies(scratch)) == 2


def test_what_was_copied_is_not_asked_for_again(served: Callable[..., Any], scratch: Path) -> None:
    server = served()
    assert has_rows(bigsvm.open_store(f"{server.url}/v3.zarr"))
    chunks = {path: n for path, n in server.seen.items() if path.startswith("GET") and "/c/" in path}
    assert chunks
    assert has_rows(bigsvm.open_store(f"{server.url}/v3.zarr"))
    assert chunks == {path: n for path, n in server.seen.items() if path in chunks}
    assert len(copies(scratch)) == 1


def test_copies_count_and_go_as_others_do(served: Callable[..., Any], scratch: Path) -> None:
    url = served().url
    with pytest.raises(PlanRefused, match='scratch_limit="1MiB"'), storing(scratch_limit=100):
        bigsvm.open_store(f"{url}/rows.parquet")
    store = bigsvm.open_store(f"{url}/rows.parquet")
    (copy,) = copies(scratch)
    assert not remove_copy(copy)  # it is in use
    assert has_rows(store)
    del store
    assert remove_copy(copy)
    assert copies(scratch) == []


def test_passing_faults_pass(served: Callable[..., Any]) -> None:
    server = served(faults=proxy.PASSING, rate=0.3)
    assert has_rows(bigsvm.open_store(f"{server.url}/sealed.zarr"))
    assert sum(server.spoiled.values()) > 10
    assert set(server.spoiled) == set(proxy.PASSING)


@pytest.mark.parametrize("how", ["dead", "silent"])
def test_a_dead_key_is_refused_by_name(
    how: str, forms: Path, served: Callable[..., Any], capsys: Any, scratch: Path
) -> None:
    server, dead = served(), "X/data/c/1"
    getattr(server, how).add(dead)
    options = ["--storage-option", "deadline=0.5", "--storage-option", "timeout=0.2"]
    with deadlines_over_without(dead, forms, scratch):
        assert run(["inspect", f"{server.url}/sealed.zarr", *options]) == 74
    said = capsys.readouterr().err
    assert f"error: {server.url}/sealed.zarr/{dead}: given up after " in said
    getattr(server, how).clear()  # and now it is well again: what was there stays
    server.seen.clear()
    assert has_rows(bigsvm.open_store(f"{server.url}/sealed.zarr"))
    again = [path for path in server.seen if path.startswith("GET") and "/c/" in path]
    assert again == [f"GET /sealed.zarr/{dead}"]


def test_wrong_bytes_do_not_become_a_copy(served: Callable[..., Any], scratch: Path) -> None:
    server = served()
    server.wrong.add("X/indices/c/0")
    with pytest.raises(DataError, match="X/indices/c/0: other bytes than were sealed"):
        bigsvm.open_store(f"{server.url}/sealed.zarr")
    assert not list(scratch.rglob("X/indices/c/0"))
    assert not list(scratch.rglob("objects.json"))
    server.wrong = {"bigsvm-manifest"}
    with pytest.raises(DataError, match=r"bigsvm-manifest\.json: (damaged manifest|is not a JSON)"):
        bigsvm.open_store(f"{server.url}/sealed.zarr")


def test_an_object_that_changes_is_refused_by_name(forms: Path, served: Callable[..., Any], tmp_path: Path) -> None:
    shutil.copytree(forms / "v3.zarr", tmp_path / "v3.zarr")
    server, chunk = served(tmp_path), tmp_path / "v3.zarr" / "X" / "c" / "2" / "0"

    def change(path: str) -> None:
        # All chunks are listed before the first is read.
        if path.endswith("X/c/2/0") and server.seen["GET " + path]:
            os.utime(chunk, (1e9, 1e9))

    server.on_get = change
    with pytest.raises(DataError, match="X/c/2/0: changed since it was listed"):
        bigsvm.open_store(f"{server.url}/v3.zarr")
    assert has_rows(bigsvm.open_store(f"{server.url}/v3.zarr"))


def test_a_missing_chunk_is_named_before_anything_is_copied(
    forms: Path, served: Callable[..., Any], tmp_path: Path
) -> None:
    for name in ("sealed.zarr", "v3.zarr"):
        shutil.copytree(forms / name, tmp_path / name)
    (tmp_path / "sealed.zarr" / "X" / "data" / "c" / "1").unlink()
    (tmp_path / "v3.zarr" / "X" / "c" / "1" / "0").unlink()
    url = served(tmp_path).url
    with pytest.raises(DataError, match="X/data/c/1: is in the manifest, but not in the store"):
        bigsvm.open_store(f"{url}/sealed.zarr")
    with pytest.raises(DataError, match=r"X/c/1/0: chunk is missing"):
        bigsvm.open_store(f"{url}/v3.zarr")


@pytest.mark.parametrize("memory", ["24MiB", "64MiB"])
def test_a_large_object_of_a_server_without_ranges(
    memory: str, served: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import bigsvm.store.remote.fetch as fetch

    text = b"".join(b"%d 1:%d 3:1.5\n" % (k % 2, k) for k in range(40_000))
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "large.svm").write_bytes(text)
    monkeypatch.setattr(fetch, "_LARGEST_PIECE", 1 << 17)
    server = served(tmp_path / "web", faults=("short", "503"), rate=0.3)
    found = bigsvm.ingest(f"{server.url}/large.svm", tmp_path / "large.zarr", memory=memory)
    assert found["n_samples"] == 40_000
    with next(tmp_path.rglob("objects-*/large.svm")).open("rb") as file:
        assert file.read() == text


_OPENS = "import sys, bigsvm; bigsvm.open_store(sys.argv[1])"


def test_killed_while_copying_and_begun_again(served: Callable[..., Any], scratch: Path) -> None:
    server, reached, go_on = served(), threading.Event(), threading.Event()

    def hold(path: str) -> None:
        if path.endswith("var/_index/c/0") and server.seen["GET " + path]:
            reached.set()
            go_on.wait()

    server.on_get = hold
    url = f"{server.url}/sealed.zarr"
    try:
        with subprocess.Popen([sys.executable, "-c", _OPENS, url]) as process:
            while not reached.wait(1.0):
                assert process.poll() is None, "it ended before it came so far"
            process.kill()
    finally:
        go_on.set()
    (copy,) = copies(scratch)
    assert not (copy / "objects.json").exists()
    before = {path for path in copy.rglob("c/*") if not path.name.startswith(".")}
    assert before
    torn = min(before)
    torn.write_bytes(b"torn" + torn.read_bytes()[4:])  # as a power cut may leave it
    server.seen.clear()
    assert has_rows(bigsvm.open_store(url))
    asked = {path.removeprefix("GET /") for path in server.seen if path.startswith("GET") and "/c/" in path}
    kept = {str(path.relative_to(copy)) for path in before - {torn}}
    assert str(torn.relative_to(copy)) in asked
    assert "sealed.zarr/var/_index/c/0" in asked
    assert not asked & kept
    assert copies(scratch) == [copy]
    assert not list(copy.rglob(".*.part"))


def test_secrets_are_in_nothing_that_is_written(
    served: Callable[..., Any], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.chdir(tmp_path)
    server = served()
    there = server.url.replace("http://", f"http://user:{SECRET}@")
    said = []
    for arguments in (
        ["fit", f"{there}/sealed.zarr?sig={SECRET}#{SECRET}", "--loss", "hinge", "--log-format", "json", "-v"],
        ["predict", "sealed.model", f"{there}/rows.svm?sig={SECRET}", "-o", "out.parquet"],
        ["evaluate", "sealed.model", f"{there}/rows.svm?sig={SECRET}", "--json"],
        ["inspect", f"{there}/sealed.zarr?sig={SECRET}", "--json", "--debug"],
        ["fit", f"{there}/nothing.zarr?sig={SECRET}", "--debug", "--json"],
        ["fit", f"s3://{SECRET}:{SECRET}@rows/x.zarr", "--debug"],
        ["fit", "s3://rows/x.zarr", "--debug", "--storage-option", f"nonsense={SECRET}"],
        ["fit", "s3://rows/x.zarr", "--debug", "--storage-option", SECRET],
        ["fit", "s3://rows/x.zarr", "--debug", "--storage-option", f"deadline={SECRET}"],
        ["fit", f"{there}/sealed.zarr?sig={SECRET}", "-o", f"https://u:{SECRET}@host/m?sig={SECRET}"],
        ["ingest", f"{there}/rows.svm?sig={SECRET}", "text.zarr", "-v"],
        ["dump", f"{there}/nothing?sig={SECRET}", "o.svm", "--storage-option", "deadline=1"],
    ):
        run(arguments)
        said.append("".join(capsys.readouterr()))
    assert (tmp_path / "sealed.model" / "model.json").is_file()
    assert (tmp_path / "out.parquet").is_file()
    assert (tmp_path / "text.zarr").is_dir()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 30
    assert not [str(path) for path in files if SECRET.encode() in path.read_bytes() or SECRET in str(path)]
    assert not [text for text in said if SECRET in text]


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "there.zarr", "-o", "s3://bucket/m"],
        ["fit", "there.zarr", "--run", "gs://bucket/run"],
        ["predict", "m", "there.zarr", "-o", "az://bucket/out.csv"],
        ["ingest", "there.svm", "s3://bucket/store.zarr"],
        ["dump", "there.zarr", "https://host/out.svm"],
        ["seal", "s3://bucket/store.zarr"],
    ],
)
def test_outputs_elsewhere_are_refused_before_any_work(arguments: list[str], capsys: Any) -> None:
    assert run(arguments) == OutputError.code
    assert "outputs are written only to local disks" in capsys.readouterr().err


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UsageError, match=r"s3:// needs obstore.*pip install 'bigsvm\[remote\]'"):
        bigsvm.open_store("s3://bucket/rows.zarr")


def test_what_makes_no_sense_is_refused_at_once(served: Callable[..., Any]) -> None:
    url = served().url
    for name, error, said in (
        (f"{url}/nothing.zarr", MissingInput, "nothing is there"),
        (f"{url}/*.parquet", UsageError, "does not list"),
        (f"{url}/rows.svm", UsageError, "bigsvm ingest http"),
        (f"{url}/rows.mat", UsageError, "not read"),
        ("ftp://host/rows.zarr", UsageError, "s3://, gs://"),
        ("s3:///rows.zarr", UsageError, "names no bucket"),
        ("s3://bucket/a/../rows.zarr", UsageError, "its path has an empty part, . or .."),
        ("s3://user:x@bucket/rows.zarr", UsageError, "credentials come from"),
    ):
        with pytest.raises(error, match=said):
            bigsvm.open_store(name)
    with pytest.raises(UsageError, match="storage options are for buckets"):
        bigsvm.open_store(f"{url}/sealed.zarr", storage_options={"region": "x"})
    with pytest.raises(UsageError, match="a dictionary"):
        bigsvm.open_store(f"{url}/sealed.zarr", storage_options=SECRET)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at most 180"), storing({"deadline": 181}):
        pass


def test_a_url_without_its_secrets_is_its_name() -> None:
    name = without_secrets("HTTPS://user:pass@host:1/a/b.csv?sig=1#part")
    assert name == "https://host:1/a/b.csv"
    assert with_secrets(name) == "HTTPS://user:pass@host:1/a/b.csv?sig=1#part"
    assert without_secrets("/a/b?c@d") == "/a/b?c@d"
    assert "pass" not in repr(current())


class Answers:
    """Gives what was put in, one thing after the other; the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.n = answers, 0

    def __call__(self) -> Any:
        answer = self.answers[min(self.n, len(self.answers) - 1)]
        self.n += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


ABSENT, BUSY = Believed("is not there", "absent"), Passing("HTTP 503")


def test_a_stray_answer_is_asked_about_again() -> None:
    patience = Patience(1e9)
    assert patience.ask("key", Answers(ABSENT, ABSENT, BUSY, ABSENT, ABSENT, ABSENT, 7)) == 7
    always = Answers(ABSENT)
    with pytest.raises(Absent, match="key: is not there"):
        patience.ask("key", always)
    assert always.n == 4
    with pytest.raises(ReadFailed, match=r"given up after \d+ requests in 0.05 s; the last fault: HTTP 503"):
        Patience(0.05).ask("key", Answers(BUSY))


def test_pauses_are_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigsvm.store.remote.faults.time.monotonic", lambda: 0.0)
    pauses: list[list[float]] = []
    for _ in range(2):
        patience = Patience(20.0)
        pauses.append([])
        monkeypatch.setattr(patience.stopping, "wait", pauses[-1].append)
        assert patience.ask("key", Answers(*[BUSY] * 6, 1)) == 1
    assert pauses[0] == pauses[1]
    assert len(pauses[0]) == 6
    assert all(b > a / 2 for a, b in zip(pauses[0], pauses[0][1:], strict=False))
    assert np.ptp(np.array(pauses[0]) / 2.0 ** np.arange(6)) > 0  # jitter


def test_a_place_in_a_copy_is_told_with_the_name_that_was_given(served: Callable[..., Any], scratch: Path) -> None:
    url = f"{served().url}/sealed.zarr"
    store = bigsvm.open_store(url)
    (damaged,) = scratch.rglob("sealed.zarr/X/data/c/1")
    damaged.write_bytes(b"else")
    with pytest.raises(DataError) as caught:
        has_rows(store)
    assert caught.value.where == f"{url}/X/data/c/1"
    assert str(caught.value).count("sealed.zarr") == 1
