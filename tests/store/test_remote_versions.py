"""Web servers whose object changes while it is copied, by what they say of its version; servers that break rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from itertools import product
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest

from bigsvm.cli.main import run
from bigsvm.cli.session import Session
from bigsvm.errors import BigSVMError, DataError, MissingInput
from bigsvm.store.remote.names import here
from bigsvm.store.remote.settings import storing
from tests.store.remote_servers import proxy

pytest.importorskip("obstore")

PIECE, PIECES = 128, 5
OLD, NEW = (b"label,x\n" + b"".join(b"%d,%d.%04d\n" % (i % 2, k, i) for i in range(70)) for k in (1, 2))
DATES = ("Sat, 01 Nov 2025 00:00:00 GMT", "Sat, 01 Nov 2025 00:00:01 GMT")
WHO = ("", "head", "get", "head get")
TAGS = [(tag, weak) for tag in WHO for weak in WHO if set(weak.split()) <= set(tag.split())]
"""The methods whose answers have an ETag, and those of them whose ETags are weak."""
UNKNOWN = "the server gives neither an ETag nor the time of the last change"


@dataclass
class Manners:
    """How the server answers about one object.

    tag, time : the methods whose answers have an ETag, and a Last-Modified;  weak : the methods whose ETags are weak
    date : a Last-Modified that is given instead of the time
    change : number of the piece before which the object changes;  new : what it is then
    part : what is said of a part: range, star, nothing, nonsense, shifted, short, long, whole or refused
    circle : every answer redirects to itself;  no_head : HEAD is refused
    """

    tag: str = ""
    time: str = ""
    weak: str = ""
    date: str = ""
    change: int | None = None
    part: str = "range"
    circle: bool = False
    no_head: bool = False
    new: bytes = NEW
    changed: bool = False
    seen: list[str] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet, so that nobody waits for a second one
    manners: ClassVar[dict[str, Manners]]

    def log_message(self, *_: object) -> None: ...

    def do_HEAD(self) -> None:
        self._answer("head")

    def do_GET(self) -> None:
        self._answer("get")

    def _answer(self, method: str) -> None:
        manners, asked = self.manners[self.path], self.headers.get("range")
        manners.seen.append(f"{method} {asked or ''}".strip())
        if manners.circle:
            return self._send(302, b"", {"location": self.path})
        if manners.no_head and method == "head":
            return self._send(403, b"", {})
        bounds = re.fullmatch(r"bytes=(\d+)-(\d+)", asked or "")
        first, stop = (int(bounds[1]), int(bounds[2]) + 1) if bounds else (0, 1 << 20)
        if method == "get" and stop - first > 1 and first // PIECE == manners.change:
            manners.changed = True
        content = manners.new if manners.changed else OLD
        said = {}
        if method in manners.tag.split():
            said["etag"] = ("W/" if method in manners.weak.split() else "") + f'"{manners.changed:d}"'
        if method in manners.time.split():
            said["last-modified"] = manners.date or DATES[manners.changed]
        if bounds is None or manners.part == "whole":
            return self._send(200, content, said)
        stop = min(stop, len(content))
        if first >= stop or (manners.part == "refused" and first):
            return self._send(416, b"", {**said, "content-range": f"bytes */{len(content)}"})
        if manners.part == "shifted" and first:
            first, stop = first - 1, stop - 1
        if manners.part == "short" and stop - first > 7:
            stop -= 7
        ranges = {"star": f"bytes {first}-{stop - 1}/*", "nonsense": "bytes some"}
        if manners.part != "nothing":
            said["content-range"] = ranges.get(manners.part, f"bytes {first}-{stop - 1}/{len(content)}")
        return self._send(206, content[first:stop] + b"more" * (manners.part == "long"), said)

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in {"content-length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a folder whose objects are all the same, and are copied in pieces, one after the other."""
    monkeypatch.setenv("BIGSVM_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr("bigsvm.store.remote.faults._FIRST_WAIT_S", 0.0)
    monkeypatch.setattr("bigsvm.store.remote.fetch._CONNECTIONS", 1)
    monkeypatch.setattr("bigsvm.store.remote.fetch._LARGEST_PIECE", PIECE)
    monkeypatch.setattr(Handler, "manners", {}, raising=False)
    for name, value in (("_UNKNOWN_S", 1e6), ("_UNKNOWN_SHARE", 1e-6), ("_LEAST_S", 1e6)):  # no request beside another
        monkeypatch.setattr(f"bigsvm.store.remote.race.{name}", value)
    with proxy.serving(Handler) as found:
        yield found


def copied(where: str, manners: Manners, quiet: bool = True) -> tuple[bytes | BigSVMError, list[str]]:
    """The bytes of a copy, or why there is none, and the warnings that a command would put into its result."""
    Handler.manners[urlsplit(where).path] = manners
    session = Session("inspect", quiet=quiet, progress=False)
    try:
        with storing(watch=session.watching), here(where) as path:
            return Path(path).read_bytes(), session.warnings
    except BigSVMError as error:
        return error, session.warnings


def test_the_object_is_copied_in_pieces(url: str) -> None:
    """Else the tests below would see no change between two answers."""
    manners, where = Manners("head get"), f"{url}/rows.csv"
    assert copied(where, manners) == (OLD, [])
    assert [asked.partition(" ")[0] for asked in manners.seen] == ["head", *["get"] * PIECES]
    assert copied(where, manners) == (OLD, [])
    assert len(manners.seen) == PIECES + 2, "the copy is used again"


@pytest.mark.parametrize("time", WHO)
@pytest.mark.parametrize(("tag", "weak"), TAGS)
def test_no_copy_has_bytes_of_two_versions(
    tag: str, time: str, weak: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for change, quiet in ((None, False), (0, True), (PIECES // 2, False), (PIECES - 1, True)):
        where = f"{url}/{change}-{quiet}.csv"
        found, warned = copied(where, Manners(tag, time, weak, change=change), quiet)
        told = capsys.readouterr().err
        if tag or time:
            assert warned == []
            assert told == "" or not quiet
            if change is None:
                assert found == OLD
            else:
                assert isinstance(found, DataError), change
                assert str(found) == f"{where}: changed since it was listed (repeat the command, which copies it again)"
        else:  # there is nothing to compare but the bytes, which the warning says
            assert found == {None: OLD, 0: NEW}.get(change) or isinstance(found, DataError)
            assert isinstance(found, DataError) == (change not in (None, 0))
            assert [UNKNOWN in warning for warning in warned] == [True]
            assert (UNKNOWN in told) != quiet


@pytest.mark.parametrize("no_head", [False, True])
@pytest.mark.parametrize("time", WHO)
@pytest.mark.parametrize("tag", WHO)
def test_servers_without_ranges_or_without_head(tag: str, time: str, no_head: bool, url: str) -> None:
    known = "get" in tag + time or ((tag or time) and not no_head)
    for part, change in product(("range", "whole", "star"), (None, 0, PIECES // 2)):
        manners = Manners(tag, time, change=change, part=part, no_head=no_head)
        found, warned = copied(f"{url}/{change}-{part}.csv", manners)
        if change is None:
            assert found == OLD
        elif part == "range" and (known or change):
            assert isinstance(found, DataError)
        else:
            assert isinstance(found, DataError) or found in (OLD, NEW)
        assert (warned == []) == bool(known)


@pytest.mark.parametrize("tag", WHO)
@pytest.mark.parametrize("time", WHO[1:])
def test_a_time_that_is_no_date(tag: str, time: str, url: str) -> None:
    for change in (None, 0, PIECES // 2, PIECES - 1):
        manners, where = Manners(tag, time, date="yesterday", change=change), f"{url}/{change}.csv"
        found, warned = copied(where, manners)
        if "get" in time:
            assert isinstance(found, MissingInput)
            said = "the server gives a Last-Modified that is no date"
            assert str(found) == f"{where}: {said} (download it first (curl -o FILE URL), and name FILE)"
            assert len(manners.seen) <= 5
        elif change is None:  # GET is asked instead of HEAD
            assert found == OLD
        else:
            assert isinstance(found, DataError) or "get" not in tag
        assert (warned == []) == ("get" in tag + time)


@pytest.mark.parametrize("tag", WHO[1:])
def test_an_object_that_changes_within_a_second(tag: str, url: str) -> None:
    """Then the time of the last change stays what it was, and only ETags tell the versions apart."""
    for change in range(PIECES):
        found, warned = copied(f"{url}/{change}.csv", Manners(tag, "head get", date=DATES[0], change=change))
        assert warned == []
        # The ETags of GET cannot be compared with a listing that has none, but with each other.
        assert isinstance(found, DataError) or (found == NEW and tag == "get" and change == 0)


@pytest.mark.parametrize("tag", WHO)
@pytest.mark.parametrize("length", [PIECE + 1, len(OLD) - 1, len(OLD) + 1])
def test_an_object_that_gets_another_length(length: int, tag: str, url: str) -> None:
    """With or without anything else that tells its version."""
    for change in (0, PIECES // 2, PIECES - 1):
        found, _ = copied(f"{url}/{change}.csv", Manners(tag, change=change, new=(NEW + NEW)[:length]))
        assert isinstance(found, DataError)
        assert "changed since it was listed" in str(found)


@pytest.mark.parametrize("tag", WHO)
@pytest.mark.parametrize("time", WHO[1:])
def test_a_new_copy_is_made_of_an_object_that_changed(tag: str, time: str, url: str) -> None:
    """After the refusal: no bytes of the first attempt are in it."""
    for change in (0, PIECES // 2, PIECES - 1):
        manners, where = Manners(tag, time, change=change), f"{url}/{change}.csv"
        assert isinstance(copied(where, manners)[0], DataError)
        assert copied(where, manners)[0] == NEW
        manners.changed, manners.change = False, None
        assert copied(where, manners)[0] == OLD, "it has changed back"


REDIRECTS = (
    "redirects again and again, without end (see where the URL leads (curl -IL URL), and name the URL of the file)"
)
DOWNLOAD = "(download it first (curl -o FILE URL), and name FILE)"


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize(
    ("manners", "said"),
    [
        ({"circle": True}, f"the server {REDIRECTS}"),
        ({"part": "nothing"}, f"does not say which one (no Content-Range) {DOWNLOAD}"),
        ({"part": "nonsense"}, f"with a Content-Range that cannot be read {DOWNLOAD}"),
        ({"part": "shifted"}, f"the server answers a request for the bytes 128-255 with 127-254 {DOWNLOAD}"),
        ({"part": "long"}, f"the server answers a request for 128 bytes with 132 {DOWNLOAD}"),
        ({"part": "refused"}, f"refuses the bytes 128-255 of the {len(OLD)} that it announces (HTTP 416) {DOWNLOAD}"),
        ({"date": "yesterday"}, f"the server gives a Last-Modified that is no date {DOWNLOAD}"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("no_head", [False, True])
def test_a_server_that_breaks_rules_is_refused_soon(
    manners: dict[str, Any], said: str, no_head: bool, quiet: bool, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = f"{url}/rows.csv"
    answers = Handler.manners["/rows.csv"] = Manners("head get", "head get", no_head=no_head, **manners)
    assert run(["inspect", where, *(["--quiet"] if quiet else [])]) == 66
    (line,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("copying")]
    assert line.startswith(f"bigsvm: error: {where}: ")
    assert line.endswith(f"{said} [errors.md#missing-input]")
    assert len(answers.seen) <= (22 if "circle" in manners else 10)


@pytest.mark.parametrize("tag", WHO)
@pytest.mark.parametrize("part", ["star", "short", "whole"])
def test_what_is_permitted_of_parts_is_read(part: str, tag: str, url: str) -> None:
    """A range without the length of the whole, the beginning of a range, or the whole: the object is read at once."""
    manners = Manners(tag, part=part)
    assert copied(f"{url}/rows.csv", manners)[0] == OLD
    assert len(manners.seen) <= 8
    assert manners.seen.count("get") <= 2


@pytest.mark.parametrize("quiet", [False, True])
def test_an_object_that_nobody_can_recognise_is_in_the_warnings_of_the_result(
    quiet: bool, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Handler.manners["/rows.csv"] = Manners()
    assert run(["inspect", f"{url}/rows.csv", "--json", *(["--quiet"] if quiet else [])]) == 0
    out, err = capsys.readouterr()
    assert UNKNOWN in out
    assert (UNKNOWN in err) != quiet
