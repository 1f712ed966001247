from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pytest

from plain_api import PlainApi


class HasKubeconfig(Protocol):
    @property
    def kubeconfig(self) -> Path: ...


@pytest.fixture
def api(sandbox: HasKubeconfig) -> Iterator[PlainApi]:
    client = PlainApi(sandbox.kubeconfig)
    yield client
    client.close()


@pytest.fixture
def stored(api: PlainApi) -> Iterator[Callable[[str, dict[str, Any]], str]]:
    """Return a function that creates an object under a name of its own and returns its path; all are deleted after."""
    paths: list[str] = []

    def store(collection: str, body: dict[str, Any]) -> str:
        name = f"schema-{uuid4().hex[:10]}"
        answer = api.create(collection, {**body, "metadata": {"name": name}})
        assert not answer.refused, answer.message
        paths.append(f"{collection}/{name}")
        return paths[-1]

    yield store
    for path in paths:
        api.delete(path)
