"""A plain client of the API for tests, independent of Berth's own: JSON in, JSON or the server's refusal out."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pykube_client import connect

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said; `message` is empty unless it refused."""

    code: int
    body: Any
    warnings: str = ""
    """What kubectl would write as warnings."""

    @property
    def refused(self) -> bool:
        """Return whether the server refused."""
        return self.code >= 400

    @property
    def message(self) -> str:
        """Return why the server refused."""
        return str(self.body.get("message", "")) if self.refused else ""


class PlainApi:
    """One API server, addressed by paths such as `apis/GROUP/VERSION/PLURAL`."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = connect(kubeconfig)

    def close(self) -> None:
        """Close the connections."""
        self._client.session.close()

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        media_type: str = JSON,
        dry_run: bool = False,
        strict: bool = False,
    ) -> Answer:
        headers = {"Content-Type": media_type} if method != "GET" else {"Accept": media_type}
        data = None if body is None else json.dumps(body)
        query = ({"dryRun": "All"} if dry_run else {}) | ({"fieldValidation": "Strict"} if strict else {})
        url = f"{self._client.url}/{path}"
        answer = self._client.session.request(method, url, data=data, headers=headers, params=query, timeout=120)
        # A path that is not served yet is answered in plain words.
        is_json = "json" in answer.headers.get("Content-Type", "")
        return Answer(
            answer.status_code,
            answer.json() if is_json else {"message": answer.text},
            answer.headers.get("Warning", ""),
        )

    def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False, strict: bool = False) -> Answer:
        """Create an object, or only ask whether it could be created; `strict` as kubectl does it."""
        return self._send("POST", path, body=body, dry_run=dry_run, strict=strict)

    def get(self, path: str) -> Answer:
        """Read an object or a list."""
        return self._send("GET", path)

    def table(self, path: str) -> Answer:
        """Read an object or a list as kubectl prints it."""
        return self._send("GET", path, media_type=TABLE)

    def merge_patch(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Answer:
        """Merge a patch into an object, or only ask whether that could be done."""
        return self._send("PATCH", path, body=body, media_type=MERGE_PATCH, dry_run=dry_run)

    def json_patch(self, path: str, *operations: Mapping[str, Any], dry_run: bool = False) -> Answer:
        """Patch an object by operations, or only ask whether that could be done."""
        return self._send("PATCH", path, body=operations, media_type=JSON_PATCH, dry_run=dry_run)

    def delete(self, path: str) -> Answer:
        """Delete an object or all of a list."""
        return self._send("DELETE", path)
