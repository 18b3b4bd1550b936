"""Web servers that say little of what they give: no ETag and no time, no HEAD, metadata that are behind the arrays."""

from __future__ import annotations

import gc
import itertools
import pickle
import re
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import zarr

import bigsvm
from bigsvm.cli.main import run
from bigsvm.errors import DataError, MissingInput
from bigsvm.events import Warned
from bigsvm.store.copy.copy_folder import copies_folder, copies_in
from bigsvm.store.remote.names import chosen_by_query, with_secrets, without_secrets
from tests.store.remote_servers import proxy, rows_of

pytest.importorskip("obstore")


class Handler(BaseHTTPRequestHandler):
    """Files by path, and a CSV for each query.

    head : the status that every HEAD is answered with; 0: as GET.  ranges, lengths : whether they are given
    """

    protocol_version = "HTTP/1.1"
    folder: ClassVar[Path]
    head, ranges, lengths = 0, True, True

    def log_message(self, *_: object) -> None: ...

    def do_HEAD(self) -> None:
        if self.head:
            return self._answer(self.head, b"", {})
        return self.do_GET()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        path = self.folder / unquote(url.path).lstrip("/")
        if url.query.startswith("day="):
            content = table(int(url.query[4:]))
        elif path.is_dir():
            return self._answer(405, b"", {})
        elif not path.is_file():
            return self._answer(404, b"", {})
        else:
            content = path.read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range") or "")
        if asked is None or not self.ranges:
            return self._answer(200, content, {})
        first, last = int(asked[1]), min(int(asked[2]), len(content) - 1)
        return self._answer(206, content[first : last + 1], {"content-range": f"bytes {first}-{last}/{len(content)}"})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response_only(status)  # no date either
        length = {"content-length": str(len(body))} if self.lengths else {"connection": "close"}
        for name, value in {**length, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection |= not self.lengths
        if self.command != "HEAD":
            self.wfile.write(body)


def table(number: int) -> bytes:
    return ("label,x\n" + "".join(f"{i % 2},{number}.{i:02d}\n" for i in range(20))).encode()


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("BIGSVM_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr("bigsvm.store.remote.faults._FIRST_WAIT_S", 0.005)
    monkeypatch.setattr(Handler, "folder", tmp_path / "www", raising=False)
    (tmp_path / "www").mkdir()
    with proxy.serving(Handler) as found:
        yield found


def first_value(name: str) -> float:
    return float(rows_of(bigsvm.open_store(name))[0][0, 0])


def test_without_tags_nobody_is_given_what_was_copied_before(url: str, tmp_path: Path) -> None:
    place = tmp_path / "www" / "rows.csv"
    for number in (1, 2):
        place.write_bytes(table(number))
        store = bigsvm.open_store(f"{url}/rows.csv")
        assert rows_of(store)[0][0, 0] == float(f"{number}.00")
    events: list[Any] = []
    bigsvm.ingest(f"{url}/rows.csv", tmp_path / "here.zarr", emit=events.append)
    warned = [event.message for event in events if isinstance(event, Warned)]
    assert any("neither an ETag nor the time of the last change" in message for message in warned)
    assert [first_value(f"{url}/any.csv?day={day}") for day in (3, 4, 3)] == [3.0, 4.0, 3.0]
    del store
    assert copies_in(copies_folder(tmp_path / "scratch")) == [], "what nobody can use again is not kept"


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("status", [401, 403, 405])
def test_a_server_that_answers_no_head_is_asked_by_get(
    status: int, ranges: bool, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a URL that was signed for GET, or a small server of one's own."""
    monkeypatch.setattr(Handler, "head", status)
    monkeypatch.setattr(Handler, "ranges", ranges)
    (tmp_path / "www" / "rows.csv").write_bytes(table(7))
    assert first_value(f"{url}/rows.csv") == 7.0
    (tmp_path / "www" / "folder").mkdir()
    for name in ("other.csv", "folder"):
        with pytest.raises(MissingInput, match="nothing is there"):
            bigsvm.open_store(f"{url}/{name}")


@pytest.mark.parametrize("status", [0, 403, 405])
def test_a_server_that_tells_no_length_is_refused_with_the_remedy(
    status: int, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As what is made, or packed, while it is sent."""
    monkeypatch.setattr(Handler, "head", status)
    monkeypatch.setattr(Handler, "lengths", False)
    monkeypatch.setattr(Handler, "ranges", False)
    (tmp_path / "www" / "rows.csv").write_bytes(table(7))
    assert run(["fit", f"{url}/rows.csv", "-o", str(tmp_path / "m")]) == 66
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert f"{url}/rows.csv: the server does not say how long it is (no Content-Length)" in said[0]
    assert "(download it first (curl -o FILE URL), and name FILE)" in said[0]


@pytest.mark.parametrize("came", ["rows", "weights", "rows and weights"])
@pytest.mark.parametrize("version", [2, 3])
def test_what_came_after_the_metadata_were_consolidated_is_read(
    version: Any, came: str, url: str, tmp_path: Path
) -> None:
    place = str(tmp_path / "www" / "rows.zarr")
    X, y = np.random.default_rng(0).random((60, 3)).astype(np.float32), np.arange(60) % 2
    n = 40 if "rows" in came else 60
    group = zarr.open_group(place, mode="w", zarr_format=version)
    for name, values in (("X", X[:n]), ("obs/label", y[:n])):
        group.create_array(name, data=values, chunks=(10, *values.shape[1:]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(place)
    group = zarr.open_group(place, mode="a", use_consolidated=False)
    for name, values in (("X", X), ("obs/label", y)):
        array: Any = group[name]
        array.resize(values.shape)
        array[:] = values
    if "weights" in came:
        group.create_array("obs/weight", data=np.arange(60) + 1.0, chunks=(10,))
    here, there = bigsvm.open_store(place), bigsvm.open_store(f"{url}/rows.zarr")
    assert here.identity == there.identity
    assert there.has_weights == ("weights" in came)
    np.testing.assert_array_equal(rows_of(there)[0], X)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("large", [True, False])
def test_the_chunks_of_a_store_without_tags_are_of_one_version(
    ranges: bool, large: bool, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk has the length that it had, so that nothing but its bytes tells that the store was written anew."""
    place, old = tmp_path / "www" / "rows.zarr", np.arange(180, dtype=np.float32).reshape(60, 3)
    group = zarr.open_group(place, mode="w")
    for name, values in (("X", old), ("obs/label", np.arange(60) % 2)):
        group.create_array(name, data=values, chunks=(20, *values.shape[1:]), compressors=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(group.store)
    versions = {chunk: chunk.read_bytes() for chunk in place.glob("X/c/*/*")}

    def put(factor: float) -> None:
        for chunk, content in versions.items():
            beside = chunk.with_name("new")
            beside.write_bytes((factor * np.frombuffer(content, np.float32)).astype(np.float32).tobytes())
            beside.replace(chunk)

    asked, changes, answer = list[str](), [0], Handler.do_GET

    def changing(self: Handler) -> None:
        if self.command == "GET" and "/X/c/" in self.path:
            asked.append(self.path)
            if len(asked) == changes[0]:
                put(2.0)
        answer(self)

    monkeypatch.setattr("bigsvm.store.remote.fetch._CONNECTIONS", 1)
    monkeypatch.setattr("bigsvm.store.remote.fetch._LARGEST_PIECE", 100 if large else 1000)
    monkeypatch.setattr(Handler, "do_GET", changing)
    monkeypatch.setattr(Handler, "ranges", ranges)
    monkeypatch.setattr(Handler, "wbufsize", -1)  # an answer is one packet, so that nobody waits for a second one
    np.testing.assert_array_equal(rows_of(bigsvm.open_store(f"{url}/rows.zarr"))[0], old)
    refused, tried = 0, range(len(asked), 0, -3)
    for number in tried:
        asked.clear()
        changes[0] = number
        put(1.0)
        try:
            found = rows_of(bigsvm.open_store(f"{url}/rows.zarr"))[0]
        except DataError:
            refused += 1
        else:
            np.testing.assert_array_equal(found, 2 * old)
    assert 2 * refused >= len(tried)


def test_urls_that_differ_in_their_query_are_each_their_own(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was opened before or lies beside it, also of a server whose tags are the same."""
    answer = Handler._answer
    same = {"etag": '"1"', "last-modified": "Sat, 01 Nov 2025 00:00:00 GMT"}

    def tagged(self: Handler, status: int, body: bytes, headers: dict[str, str]) -> None:
        answer(self, status, body, {**same, **headers})

    monkeypatch.setattr(Handler, "_answer", tagged)
    (tmp_path / "www" / "rows.csv").write_bytes(table(9))
    urls = {1: f"{url}/rows.csv?day=1", 2: f"{url}/rows.csv?day=2", 9: f"{url}/rows.csv"}
    for order in itertools.permutations(urls):
        for day in order:
            assert first_value(urls[day]) == float(day)
    stores = {day: bigsvm.open_store(name) for day, name in urls.items()}
    for day, store in stores.items():
        assert rows_of(store)[0][0, 0] == float(day)
        assert store.uri.endswith("rows.csv")
    with ThreadPoolExecutor(3) as pool:
        days = [1, 2, 9] * 6
        assert list(pool.map(first_value, [urls[day] for day in days])) == list(map(float, days))
    assert without_secrets(urls[1]) == without_secrets(urls[9]) == urls[9]
    assert with_secrets(pickle.loads(pickle.dumps(without_secrets(f"{url}/a.csv?sig=x")))).endswith("?sig=x")
    assert b"sig" not in pickle.dumps(without_secrets(f"{url}/a.csv?sig=x"))


def test_texts_that_differ_in_their_query_are_taken_in_each(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        globals(), "table", lambda number: "".join(f"{i % 2} 1:{number}.5\n" for i in range(10)).encode()
    )
    (tmp_path / "www" / "rows.svm").write_bytes(b"1 1:9.5\n")
    names = [f"{url}/rows.svm?day=2", f"{url}/rows.svm", f"{url}/rows.svm?day=1"]
    bigsvm.ingest(names, tmp_path / "rows.zarr")
    X = rows_of(bigsvm.open_store(tmp_path / "rows.zarr"))[0]
    assert X[:, 0].tolist() == [2.5] * 10 + [9.5] + [1.5] * 10


def test_a_new_signature_is_no_other_file() -> None:
    """A URL that is signed anew each night names the same object, whose copy stays."""
    where, seen = "https://host/rows.csv", set()
    for signed in ("X-Amz-Date=1&X-Amz-Signature=a", "X-Amz-Date=2&X-Amz-Signature=b", "sig=3&se=4&sv=5", "Expires=1"):
        seen.add(chosen_by_query(without_secrets(f"{where}?{signed}")))
        assert chosen_by_query(without_secrets(f"{where}?versionId=7&{signed}")) not in ("", *seen)
    assert seen == {""}


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("options", [{"rows": "x > 0"}, {"split": 0.5}, {"scale": "maxabs"}, {"positive": "1"}, {}])
def test_a_copy_stays_as_long_as_its_rows_are_read(url: str, tmp_path: Path, options: dict[str, Any]) -> None:
    """Of a server without tags it goes when the last who reads it does, whatever was made of the store meanwhile."""
    (tmp_path / "www" / "rows.csv").write_bytes(table(1))
    if "rows" in options:
        options = {**options, "columns": ["x"]}
    store = bigsvm.open_store(f"{url}/rows.csv", **options)
    gc.collect()
    assert len(copies_in(copies_folder(tmp_path / "scratch"))) == 1
    assert rows_of(store)[0].shape[1] == 1
    del store
    gc.collect()
    assert not copies_in(copies_folder(tmp_path / "scratch"))
