"""A proxy before a web server or an S3 server on the loopback, which does to answers what networks and stores do."""

from __future__ import annotations

import http.client
import http.server
import logging
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

PASSING = ("500", "503", "429", "reset", "short", "stall", "403", "404", "flip")
"""Faults that come and go; flip changes a byte of a right answer."""
_STRAYS = 3
"""So often in a row one path gets the same fault at most: what comes a fourth time is believed."""
_ERROR = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>of the proxy</Message></Error>"


class Proxy:
    """Forwards requests to `upstream`, and spoils some of the answers to GET and HEAD.

    faults : names of PASSING, which take turns
    rate : share of requests that are spoiled;  burst : so many in a row
    dead : parts of paths of which a GET is answered by 503 for ever, or `silent` ones by half of it and then nothing
    wrong : parts of paths whose bytes are always wrong, in the same way
    seen : requests by path, all together;  spoiled : faults by name
    on_get : called with each path before it is answered
    """

    def __init__(
        self, upstream: str, faults: tuple[str, ...] = (), rate: float = 0.0, burst: int = 2, seed: int = 1
    ) -> None:
        self.upstream, self.faults, self.rate, self.burst = urlsplit(upstream), faults, rate, burst
        self.dead: set[str] = set()
        self.silent: set[str] = set()
        self.wrong: set[str] = set()
        self.seen: Counter[str] = Counter()
        self.spoiled: Counter[str] = Counter()
        self.on_get: Callable[[str], None] = lambda path: None
        self.ended = threading.Event()
        self.url = ""
        self._lock, self._rng, self._left = threading.Lock(), random.Random(seed), [0, ""]
        self._drawn = 0
        self._in_a_row: dict[str, tuple[str, int]] = {}

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        """Serve on a free port while the block runs."""
        with serving(type("Handler", (_Handler,), {"proxy": self})) as self.url:
            try:
                yield self
            finally:
                self.ended.set()

    def fault(self, command: str, path: str) -> str:
        """What is done to the next answer; '' for nothing."""
        for keys, name in ((self.dead, "503"), (self.silent, "stall"), (self.wrong, "always")):
            if command == "GET" and any(key in path for key in keys):
                return name
        with self._lock:
            if (
                self._left[0] == 0
                and self.faults
                and self._rng.random() < self.rate / (self.burst - (self.burst - 1) * self.rate)
            ):
                self._drawn += 1
                self._left = [self.burst, self.faults[self._drawn % len(self.faults)]]
            name = str(self._left[1]) if self._left[0] else ""
            before, times = self._in_a_row.get(path, ("", 0))
            if name and before == name and times == _STRAYS:
                name = ""
            self._in_a_row[path] = (name, times + 1 if name == before else 1)
            if name:
                self._left[0] -= 1
                self.spoiled[name] += 1
            return name


class _Handler(http.server.BaseHTTPRequestHandler):
    proxy: Proxy
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        with self.proxy._lock:
            self.proxy.seen[f"{self.command} {path}"] += 1
        self.proxy.on_get(path)
        fault = self.proxy.fault(self.command, path)
        if fault.isdigit():
            return self._answer(int(fault), {}, _ERROR)
        if fault == "reset":
            self.close_connection = True
            # Without lingering, closing sends a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return None
        status, headers, body = self._ask()
        if fault in ("flip", "always") and body and status in (200, 206):
            place = len(body) // 2
            body = body[:place] + bytes([body[place] ^ 0x10]) + body[place + 1 :]
        if fault in ("short", "stall"):
            self._head(status, headers, len(body) + (1 if fault == "stall" and not body else 0))
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.close_connection = True
            if fault == "stall":
                self.proxy.ended.wait(20)
            return None
        return self._answer(status, headers, body)

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        self._answer(*self._ask())

    def _ask(self) -> tuple[int, dict[str, str], bytes]:
        upstream = self.proxy.upstream
        connection = http.client.HTTPConnection(upstream.hostname or "", upstream.port)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        connection.request(self.command, upstream.path.rstrip("/") + self.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        left_out = ("connection", "transfer-encoding", "date", "server")
        kept = {name: value for name, value in answer.getheaders() if name.lower() not in left_out}
        connection.close()
        return answer.status, kept, content

    def _head(self, status: int, headers: dict[str, str], length: int) -> None:
        self.send_response(status)
        named = {name.lower(): value for name, value in headers.items()}
        if self.command != "HEAD" or "content-length" not in named:
            named["content-length"] = str(length)
        for name, value in named.items():
            self.send_header(name, value)
        self.end_headers()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self._head(status, headers, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)


class _Files(http.server.SimpleHTTPRequestHandler):
    """A folder, with an ETag made of size and time, as web servers do it."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size, block_on_close = True, 64, False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients leave whenever they like."""


@contextmanager
def serving(handler: Any) -> Iterator[str]:
    """The URL of a server on a free port of the loopback while the block runs."""
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def web_server(folder: str) -> Iterator[str]:
    """The URL of a web server that gives out the files of a folder."""

    class Files(_Files):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=folder)

    with serving(Files) as url:
        yield url


@contextmanager
def s3_server() -> Iterator[str]:
    """The URL of moto's S3 on a free port.  Raises ImportError where moto is not installed."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else it tells of every request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()
