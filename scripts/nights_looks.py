#!/usr/bin/env python3
"""Dagster's own pages about nights, in a browser: three runs of history, and the certificate of an asset.

Makes the three nights of `pipelines.dagster_demo`, starts Dagster's web server on them at a free port of this machine,
and opens its pages in Chromium: the runs must be listed as two that succeeded and one that failed, the asset
`candidate` must show a proved certificate with the gap that is in the record, and `verdict` its gates.  Every request
must go to this machine.  Pictures of the pages are in the folder.  Needs the extra `pipelines`, playwright, and
Chromium: the one that --browser names, one on the PATH, or playwright's own.

    scripts/nights_looks.py --out FOLDER [--browser /usr/bin/chromium]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
_PATIENCE_S = 120.0
_PAGES = {
    "runs": ("/runs", ("night: 1", "night: 2", "night: 3", "Success", "Failure")),
    "candidate": ("/assets/candidate?view=overview", ("certificate", "proved", "relative_gap")),
    "verdict": ("/assets/verdict?view=overview", ("accuracy", "gates")),
    "graph": ("/asset-groups", ("rows", "candidate", "verdict", "current")),
    "automation": ("/automation", ("every_night", "new_rows", "At 02:15 AM")),
}
"""Name of the picture -> address, and what must be read there."""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a web server on the history in `folder`, which ends with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ, "BIGSVM_JOB": str(folder / "job.toml"), "DAGSTER_HOME": str(folder / "dagster_home"),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }  # fmt: skip
    command = [
        sys.executable,
        "-m",
        "dagster_webserver",
        "-h",
        "127.0.0.1",
        "-p",
        str(port),
        "-m",
        "pipelines.definitions",
    ]
    with open(folder / "webserver.log", "wb") as log:
        server = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(server, address, folder / "webserver.log")
            yield address
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def _wait(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    """Until the server answers.  Raises SystemExit where it does not."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/server_info", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise SystemExit(f"the web server does not answer: {log.read_text()[-1000:]}")


def looked_at(browser: Any, address: str, out: Path, gap: str) -> list[str]:
    """What is wrong with the pages; pictures of them are in `out` afterwards.

    gap : of the model that is current, as its candidate must show it
    """
    from playwright.sync_api import TimeoutError as Late

    wrong, strangers = [], set()
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    for name, (path, wanted) in _PAGES.items():
        view = context.new_page()
        view.on("request", lambda request: strangers.add(urlsplit(request.url).hostname))
        view.goto(address + path)
        for text in (*wanted, *([gap] if name == "candidate" else [])):
            try:
                view.get_by_text(text, exact=False).first.wait_for(state="visible", timeout=30_000)
            except Late:
                wrong.append(f"{name}: {text!r} is not to be seen")
        view.screenshot(path=out / f"dagster-{name}.png")
        if name == "runs":
            rows = view.locator("a[href^='/runs/']").count()
            if rows < 3:
                wrong.append(f"runs: {rows} are listed, not three")
        view.close()
    context.close()
    strangers -= {"127.0.0.1", None}
    return wrong + [f"a page asks {host}" for host in sorted(strangers)]


def main() -> None:
    """Make the history and look at it; exit 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--browser", metavar="PATH", default=shutil.which("chromium"))
    options = parser.parse_args()
    folder = options.out.absolute() / "three-nights"
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run(
        [sys.executable, "-m", "pipelines.dagster_demo", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise SystemExit(f"the three nights ended otherwise: {made.stdout[-500:]}{made.stderr[-1500:]}")
    last = json.loads((folder / "registry" / "history.jsonl").read_text().splitlines()[-1])
    gap = str(last["metrics"]["relative_gap"])
    from playwright.sync_api import sync_playwright

    with serving(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.browser, args=["--no-sandbox"])
        wrong = looked_at(browser, address, options.out, gap)
        browser.close()
    sys.stdout.write("".join(f"{said}\n" for said in wrong))
    sys.stdout.write(f"{len(_PAGES)} pages, {len(wrong)} things wrong\n")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
