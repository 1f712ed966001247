"""A cluster in memory that knows tokens and rights, and the HTTP interface running before it."""
# ruff: noqa: A002, ANN401 - the client's own names

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any, Final, cast

import msgspec
import pytest
import requests
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from berth_descheduler.api.capacity_history import CapacityHistory
from berth_descheduler.api.openapi import describe
from berth_descheduler.api.server import RestServer
from berth_descheduler.api.settings import RestLimits, RestSettings, RestTimes
from berth_kube.client import KubeClient
from berth_kube.listing import Listing
from berth_kube.resources import (
    DESCHEDULER_POLICIES,
    MIGRATION_PLANS,
    NODES,
    PODS,
    RESERVATION_WINDOWS,
    RESERVATIONS,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    VOLCANO_QUEUES,
    Resource,
)
from builders import node, pod
from descheduler.fake_cluster import FakeCluster, Raw

ADMIN = "admin-token"
READER = "reader-token"
NOBODY = "token-of-nobody"
TOO_LONG: Final = 30.0
"""Nothing is limited to so many seconds where less than that is limited, and no machine is so busy."""
ALL_VERBS = ("get", "list", "watch", "create", "patch")


class ReviewingCluster(FakeCluster):
    """Knows whose a token is and what its owner may do; `admin` may do everything, `reader` may read."""

    def __init__(self) -> None:
        super().__init__()
        self.users = {ADMIN: "admin", READER: "reader"}
        self.rights: dict[str, set[tuple[str, str]]] = {
            "admin": {(verb, one.plural) for verb in ALL_VERBS for one in (MIGRATION_PLANS, DESCHEDULER_POLICIES)},
            "reader": {(verb, MIGRATION_PLANS.plural) for verb in ("get", "list", "watch")},
        }
        of_nodes = {("patch", NODES.plural), ("list", NODES.plural)}
        listed = (PODS, RESERVATION_WINDOWS, RESERVATIONS, VOLCANO_QUEUES)
        self.rights["admin"] |= of_nodes | {("list", one.plural) for one in listed}
        self.forbidden: set[tuple[str, str]] = set()
        """Groups and plurals of kinds that nobody may use."""
        self.audiences: list[str] | None = None
        self.delayed = 0
        self.guesses: tuple[threading.Event, float] | None = None

    def create(self, resource: Resource, body: Mapping[str, Any], *, type: Any = dict, **rest: Any) -> Any:
        if resource in (TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS):
            self._called("create", resource, "")
            spec = body["spec"]
            answer = self._whose(spec) if resource is TOKEN_REVIEWS else self._may(spec)
            return msgspec.convert({"status": answer}, type)
        return super().create(resource, body, type=type, **rest)

    def list(self, resource: Resource, *, page_size: int = 500, **rest: Any) -> Listing[Any]:  # noqa: ARG002
        return super().list(resource, **rest)

    def delay(
        self, verb: str, resource: Resource, *, until: threading.Event | None = None, seconds: float = 60
    ) -> None:
        """Answer calls of a kind only after some time, or when told to."""
        released = until or threading.Event()

        def before(called: str, plural: str, _name: str) -> None:
            if (called, plural) == (verb, resource.plural):
                with self.lock:
                    self.delayed += 1
                released.wait(seconds)

        self.before = before

    def delay_guesses(self, until: threading.Event, seconds: float = 60) -> None:
        """Delay the reviews of unknown tokens until an event is set."""
        self.guesses = (until, seconds)

    def reviews(self) -> int:
        """Return how many token reviews were made."""
        return sum(call.plural == TOKEN_REVIEWS.plural for call in self.calls)

    def _whose(self, spec: Raw) -> Raw:
        user = self.users.get(spec["token"])
        if user is None and self.guesses is not None:
            with self.lock:
                self.delayed += 1
            self.guesses[0].wait(self.guesses[1])
        if user is None:
            return {"authenticated": False, "error": f"invalid bearer token {spec['token']}"}
        audiences = {} if self.audiences is None else {"audiences": self.audiences}
        return {"authenticated": True, "user": {"username": user, "groups": ["system:authenticated"]}, **audiences}

    def _may(self, spec: Raw) -> Raw:
        wanted = spec["resourceAttributes"]
        if (wanted["group"], wanted["resource"]) in self.forbidden:
            return {"allowed": False}
        return {"allowed": (wanted["verb"], wanted["resource"]) in self.rights.get(spec["user"], set())}


def add_policy(cluster: FakeCluster, name: str, *, mode: str = "Approve", invalid: str = "") -> None:
    condition = {"type": "Valid", "status": "False" if invalid else "True", "message": invalid}
    spec = {"mode": mode, "profiles": [{"name": "default"}]}
    cluster.add(DESCHEDULER_POLICIES, {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [condition]}})


def add_plan(
    cluster: FakeCluster, name: str, *, phase: str = "Proposed", mode: str = "Approve", states: tuple[str, ...] = ()
) -> Raw:
    """Add a plan with a move for each state."""
    pods = [f"web-{index}" for index in range(len(states))]
    moves = [{"namespace": "shop", "pod": one, "podUID": f"uid-{one}", "source": "n1", "target": "n2"} for one in pods]
    spec = {
        "policy": "nightly",
        "mode": mode,
        "objective": {"plugin": "Defragmentation", "strategy": "Threshold"},
        "moves": moves,
        "predicted": {"nodes": 2, "moves": len(moves), "waves": 1},
    }
    status = {"phase": phase, "moves": move_states(states)}
    return cluster.add(MIGRATION_PLANS, {"metadata": {"name": name}, "spec": spec, "status": status})


def move_states(states: tuple[str, ...]) -> list[Raw]:
    return [{"namespace": "shop", "pod": f"web-{index}", "state": state} for index, state in enumerate(states)]


def populated() -> ReviewingCluster:
    """A cluster with two policies, some plans, and nodes with pods."""
    cluster = ReviewingCluster()
    add_policy(cluster, "nightly")
    add_policy(
        cluster, "broken", invalid="spec.profiles[0].pluginConfig[0].args.strategy is 'Best'; expected Threshold"
    )
    add_plan(cluster, "plan-done", phase="Succeeded", states=("Landed", "Landed"))
    add_plan(cluster, "plan-waiting", states=("Pending", "Pending"))
    for index in range(3):
        cluster.add(NODES, msgspec.to_builtins(node(f"n{index}", cpu="4", memory="16Gi")))
        cluster.add(PODS, msgspec.to_builtins(pod(f"web-{index}", node=f"n{index}", cpu="1", memory="1Gi")))
    return cluster


def quick(**limits: float) -> RestSettings:
    """Settings for tests: only what is limited by a case is limited, also in time; heartbeats are frequent."""
    free = {"rate_per_second": 10_000.0, "burst": 10_000, **limits}
    times = RestTimes(
        header_seconds=30, body_seconds=30, idle_seconds=30, write_seconds=30, request_seconds=40, call_seconds=30,
        stream_seconds=600, heartbeat_seconds=0.3, linger_seconds=600, capacity_seconds=0.5, stop_seconds=2,
        authentication_wait_seconds=30, body_grace_seconds=30, findings_seconds=0.5,
    )  # fmt: skip
    return RestSettings(limits=RestLimits(**cast("dict[str, Any]", free)), times=times)


def hurried(settings: RestSettings, **times: float) -> RestSettings:
    return replace(settings, times=replace(settings.times, **times))


def _sleep_briefly(seconds: float) -> Coroutine[Any, Any, None]:
    return asyncio.sleep(min(seconds, 0.01))


_BRISK_ASYNCIO = ModuleType("asyncio")
vars(_BRISK_ASYNCIO).update(vars(asyncio), sleep=_sleep_briefly)


_NOWHERE: Final = {"type": "http", "method": "GET", "path": "", "root_path": ""}
_DESCRIPTION: Final[dict[str, Any]] = {}


def describe_once(app: FastAPI) -> dict[str, Any]:
    """Describe the first application only: all have the same paths, and to describe them takes most of a start.

    To describe an application builds its paths, which would have to wait for the first request otherwise.
    """
    for route in app.routes:
        route.matches(dict(_NOWHERE))
    if not _DESCRIPTION:
        _DESCRIPTION.update(describe(app))
    return _DESCRIPTION


@contextmanager
def serving(
    cluster: ReviewingCluster,
    settings: RestSettings | None = None,
    registry: CollectorRegistry | None = None,
    history: CapacityHistory | None = None,
) -> Iterator[str]:
    """Yield the address of a running interface, whose server looks more often than each 0.1 s whether it has to end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("berth_descheduler.api.app.describe", describe_once)
        with RestServer(
            cast("KubeClient", cluster), settings or quick(), registry or CollectorRegistry(), history=history
        ) as server:
            patch.setattr("uvicorn.server.asyncio", _BRISK_ASYNCIO)
            yield server.url


def connected(url: str, *, source: str = "127.0.0.1") -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=TOO_LONG, source_address=(source, 0))


def everything_of(connection: socket.socket) -> bytes:
    """Return all that comes until a connection ends."""
    raw = b""
    while chunk := connection.recv(65536):
        raw += chunk
    return raw


def ask(method: str, url: str, *, token: str | None = ADMIN, **rest: Any) -> requests.Response:
    headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **rest.pop("headers", {})}
    with session() as asking:
        return asking.request(method, url, headers=headers, timeout=60, **rest)


def session() -> requests.Session:
    """Return a session that knows nothing of the environment's proxies, certificates and passwords."""
    made = requests.Session()
    made.trust_env = False
    return made
