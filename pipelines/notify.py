"""Notifies a program and a web address of the outcome of a run: with limits and retries, without leaking secrets."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from bigsvm.files.appending import json_line
from bigsvm.observe.jsonl import plain
from pipelines.tables import Notify

_PAUSE_S = 1.0  # before the second attempt; doubled before each further one


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, because the token would be sent to the other address."""

    def redirect_request(self, *args: Any, **options: Any) -> None:
        return None


def tell(notify: Notify, document: dict[str, Any]) -> list[str]:
    """Run the command and post to the address, if the outcome is one to report; returns failures as sentences.

    document : the document of the run from `retrain`; it is sent as one JSON object

    Nothing is raised, because the outcome stands even if nobody was notified.
    """
    if document["status"] not in notify.on:
        return []
    body = json_line(plain(document)).rstrip()
    failed = []
    if notify.command:
        failed.append(_attempts(notify, "notify.command", lambda: _run(notify, document, body)))
    if notify.url is not None or notify.url_env is not None:
        failed.append(_attempts(notify, "notify.url" if notify.url else "notify.url_env", lambda: _post(notify, body)))
    return [failure for failure in failed if failure]


def _attempts(notify: Notify, who: str, once: Callable[[], tuple[str, bool]]) -> str:
    """Repeat until it succeeds or cannot succeed; returns '' or a sentence about the failure."""
    said, number = "", 0
    for number in range(1, notify.attempts + 1):
        said, hopeful = once()
        if not said:
            return ""
        if not hopeful:
            break
        if number < notify.attempts:
            time.sleep(_PAUSE_S * 2 ** (number - 1))
    return f"{who} was not notified: {said} (attempt {number} of {notify.attempts})"


def _run(notify: Notify, document: dict[str, Any], body: bytes) -> tuple[str, bool]:
    """(description of the failure, whether a retry may help)."""
    environment = {
        **os.environ, "BIGSVM_STATUS": str(document["status"]), "BIGSVM_EXIT_CODE": str(document.get("exit_code", 0)),
        "BIGSVM_VERSION": str(document.get("version") or ""),
    }  # fmt: skip
    try:
        process = subprocess.Popen(
            notify.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, start_new_session=True
        )
    except OSError as error:
        return f"it cannot be started: {error.strerror}", False
    try:
        process.communicate(body, timeout=notify.timeout)
    except subprocess.TimeoutExpired:
        return f"it took more than {notify.timeout:g} s", True
    finally:
        if process.poll() is None:  # kill it with the processes that it started
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return (f"it ended with {process.returncode}", True) if process.returncode else ("", False)


def _post(notify: Notify, body: bytes) -> tuple[str, bool]:
    """(description of the failure, whether a retry may help); contains neither address nor token nor answer."""
    url = notify.url if notify.url is not None else os.environ.get(notify.url_env or "")
    if not url:
        return f"the environment variable {notify.url_env} is not set", False
    if not url.startswith(("http://", "https://")):
        return f"{notify.url_env} is not an http or https address", False
    headers = {"Content-Type": "application/json", "User-Agent": "bigsvm"}
    if notify.token_env is not None:
        token = os.environ.get(notify.token_env)
        if not token:
            return f"the environment variable {notify.token_env} is not set", False
        headers["Authorization"] = f"Bearer {token}"
    try:
        request = urllib.request.Request(url, body, headers, method="POST")
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=notify.timeout):
            return "", False
    except urllib.error.HTTPError as error:
        error.close()
        return f"the answer was {error.code}", error.code >= 500 or error.code in (408, 429)
    except OSError as error:  # URLError and timeouts are OSErrors
        reason = getattr(error, "reason", error)
        said = reason.strerror if isinstance(reason, OSError) and reason.strerror else type(reason).__name__
        return f"it could not be reached: {said}", True
    except Exception as error:  # an invalid address or header: the exception's message would repeat it
        return f"it could not be sent: {type(error).__name__}", False
