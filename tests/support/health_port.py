"""Asking the health port of a program, as probes and scrapes do."""

import json
import urllib.error
import urllib.request
from typing import Any

DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens addresses of this machine without a proxy."""

PATIENCE_SECONDS = 60


def ask(address: str, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Return status, content type and body of an answer."""
    request = urllib.request.Request(f"http://{address}{path}", method=method)
    try:
        with DIRECTLY.open(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.headers["Content-Type"], refusal.read().decode()


def ask_state(address: str, path: str) -> tuple[int, dict[str, Any]]:
    """Return status and document of an answer."""
    status, _, body = ask(address, path)
    return status, json.loads(body)
