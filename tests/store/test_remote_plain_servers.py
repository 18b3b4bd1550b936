"""Web servers that say little of what they give: no ETag and no time, no HEAD, metadata that are behind the arrays."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import zarr

import bigsvm
from bigsvm.errors import MissingInput
from bigsvm.events import Warned
from bigsvm.store.copy.copy_folder import copies_folder, copies_in
from tests.store.remote_servers import proxy, rows_of

pytest.importorskip("obstore")


class Handler(BaseHTTPRequestHandler):
    """Files by path, and a CSV for each query.

    head : the status that every HEAD is answered with; 0: as GET.  ranges : whether they are given
    """

    protocol_version = "HTTP/1.1"
    folder: ClassVar[Path]
    head, ranges = 0, True

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
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
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
    assert any("neither an ETag nor when it last changed" in message for message in warned)
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
