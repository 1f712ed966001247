"""kopf hears Reservations: it writes nothing to them, and whatever ends its watch, none of them is missed.

The sweep that compares everything is put off for an hour, so that it cannot find what kopf has not heard.
"""

import asyncio
import gc
import json
import threading
import urllib.error
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import kopf
import pytest

from background_runs import LONGEST_SECONDS, BackgroundRun
from berth_core.reservations import ReservationPhase
from berth_kube.configuration import find_source
from berth_kube.resources import RESERVATIONS
from berth_operator.runtime.app import App
from berth_operator.runtime.kopf_handlers import declare_reservations
from berth_operator.runtime.kopf_runtime import configure
from berth_operator.runtime.kopf_session import connection_info
from berth_sandbox.sandbox import Sandbox
from fault_proxy import FaultProxy
from faults import Call, Fault, FaultKind, NoFaults
from health_port import ask_state
from outages import LONG_SECONDS
from proxied_operator import calls, proxy, undisturbed
from reservation_stage import Stage
from service_processes import OperatorProcess, running_operator
from waiting import eventually

__all__ = ["proxy", "undisturbed"]

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def operator(
    sandbox: Sandbox, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """Yield one operator for all tests of the module."""
    folder = tmp_path_factory.mktemp("operator")
    through = proxy.write_kubeconfig(folder / "through-the-proxy.yaml")
    options = ("--identity=the-operator", "--sweep-seconds=3600", f"--kubeconfig={through}")
    with running_operator(sandbox, folder, *options) as process:
        yield process


@dataclass
class Refused:
    """Refuses what is asked of the collection of Reservations, watches or lists or both."""

    kind: FaultKind
    refuses: Callable[[Call], bool]

    def decide(self, call: Call) -> Fault:
        concerned = call.method == "GET" and call.path == RESERVATIONS.path() and self.refuses(call)
        return Fault(self.kind) if concerned else Fault()

    def hold(self, call: Call) -> None:
        """Hold nothing."""


def is_watch(call: Call) -> bool:
    return call.is_watch


def any_read(_call: Call) -> bool:
    return True


def watches(proxy: FaultProxy) -> list[Call]:
    """Return the watches of Reservations that the proxy remembers."""
    return [call for call in calls(proxy) if call.is_watch and call.path == RESERVATIONS.path()]


def ask(operator: OperatorProcess, path: str) -> tuple[int, dict[str, Any]]:
    """Return the status code and the document of a health path."""
    return ask_state(f"127.0.0.1:{operator.health_port}", path)


def answers(operator: OperatorProcess) -> bool:
    """Return whether the operator listens on its health port by now."""
    try:
        ask(operator, "/healthz")
    except urllib.error.URLError:
        return False
    return True


def test_kopf_writes_nothing_to_a_reservation_from_its_beginning_to_its_end(
    sandbox: Sandbox, operator: OperatorProcess, stage: Stage
) -> None:
    stage.reserve(ttl="10m")
    stage.wait_until_proven()
    stage.client.merge_patch(RESERVATIONS, "place", {"spec": {"ttl": "20m"}}, namespace=stage.namespace)
    eventually(
        "the changed spec is answered",
        lambda: (found := stage.read()).status.observed_generation == found.metadata.generation == 2,
        seconds=LONG_SECONDS,
    )

    body = stage.client.get(RESERVATIONS, "place", namespace=stage.namespace)
    assert "finalizers" not in body["metadata"]
    assert not [name for name in body["metadata"].get("annotations", {}) if "kopf" in name]
    assert not [entry for entry in body["metadata"]["managedFields"] if "kopf" in entry["manager"]]

    stage.client.delete(RESERVATIONS, "place", namespace=stage.namespace)
    stage.wait_until_empty(seconds=LONG_SECONDS)
    entries = [json.loads(line) for line in sandbox.audit_log.read_text(encoding="utf-8").splitlines()[:-1]]
    verbs = {entry["verb"] for entry in entries if entry["userAgent"].startswith("kopf/")}
    assert {"list", "watch"} <= verbs <= {"get", "list", "watch"}
    assert operator.exit_code is None


def test_the_operator_is_ready_only_once_kopf_hears_reservations_also_where_there_are_none(
    sandbox: Sandbox, proxy: FaultProxy, stage: Stage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    eventually("no Reservation is left", lambda: not stage.client.list(RESERVATIONS).items, seconds=LONG_SECONDS)
    folder = tmp_path_factory.mktemp("unready")
    through = proxy.write_kubeconfig(folder / "through-the-proxy.yaml")
    operator = OperatorProcess(sandbox, folder, "--identity=another", f"--kubeconfig={through}")
    proxy.journal.clear()
    proxy.plan = Refused(FaultKind.UNAVAILABLE, is_watch)
    try:
        super(OperatorProcess, operator).start()
        eventually("kopf has asked to watch twice", lambda: len(watches(proxy)) >= 2, seconds=LONG_SECONDS)
        eventually("it answers", lambda: answers(operator), seconds=LONG_SECONDS)
        assert ask(operator, "/healthz")[0] == 200
        only_reservations = ["the cache is not complete: Reservations"]
        waits_for = lambda: ask(operator, "/readyz")[1]["waitsFor"]  # noqa: E731 - a name for a claim
        eventually("it waits for nothing else", lambda: waits_for() == only_reservations, seconds=LONG_SECONDS)
        assert ask(operator, "/readyz")[0] == 503
        proxy.plan = NoFaults()
        eventually("it is ready", lambda: ask(operator, "/readyz")[0] == 200, seconds=LONG_SECONDS)
    finally:
        operator.stop()


@pytest.mark.deep
def test_what_was_deleted_before_the_watch_was_begun_anew_is_released(
    operator: OperatorProcess, proxy: FaultProxy, stage: Stage
) -> None:
    stage.reserve()
    stage.wait_until_proven()
    proxy.plan = Refused(FaultKind.UNAVAILABLE, any_read)
    proxy.journal.clear()
    proxy.cut_watches()
    eventually("kopf asks again", lambda: len(watches(proxy)) > 0, seconds=LONG_SECONDS)
    stage.client.delete(RESERVATIONS, "place", namespace=stage.namespace)

    proxy.plan = Refused(FaultKind.GONE, is_watch)
    eventually("it is told that its place is forgotten", lambda: is_told_gone(proxy), seconds=LONG_SECONDS)
    proxy.plan = NoFaults()

    stage.wait_until_empty(seconds=LONG_SECONDS)
    assert operator.exit_code is None


def is_told_gone(proxy: FaultProxy) -> bool:
    return any(fault.kind is FaultKind.GONE for _, fault in list(proxy.journal))


LINGER_SECONDS: Final = 0.5
"""aiohttp closes TLS connections after their session has ended: the loop must not end before."""


class Listener:
    """Takes what kopf's handlers call, instead of the program."""

    def __init__(self) -> None:
        self.heard: list[tuple[str | None, str, str]] = []
        self.begun: list[str] = []

    def apply_event(self, event_type: str | None, body: Mapping[str, Any]) -> None:
        self.heard.append((event_type, body["metadata"]["name"], body["metadata"]["resourceVersion"]))

    def has_heard(self, event_type: str | None, name: str = "place") -> bool:
        return any(heard[:2] == (event_type, name) for heard in self.heard)

    def knows(self, stage: Stage) -> bool:
        """Return whether the present version of the Reservation was heard."""
        body = stage.client.get(RESERVATIONS, "place", namespace=stage.namespace)
        return body["metadata"]["resourceVersion"] in {version for _, _, version in self.heard}

    def begin_reservation(self, uid: str) -> None:
        self.begun.append(uid)


@contextmanager
def listening(sandbox: Sandbox) -> Iterator[Listener]:
    """Run kopf with the handlers of Reservations until the end of the block."""
    listener, stop_flag = Listener(), threading.Event()
    registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
    configure(settings)
    info = connection_info(find_source(str(sandbox.service_account_kubeconfig("berth-operator")), None).load())
    kopf.on.login(id="login", registry=registry)(lambda **_: info)
    declare_reservations(registry, cast("App", listener))

    async def run() -> None:
        await kopf.operator(
            registry=registry, settings=settings, clusterwide=True, standalone=True, stop_flag=stop_flag
        )
        await asyncio.sleep(LINGER_SECONDS)

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        stop_flag.set()
        thread.join(LONG_SECONDS)
        with warnings.catch_warnings():  # a connection that is closed later than that is no fault of a later test
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def test_kopf_knows_a_beginning_a_changed_spec_and_what_was_handled_before(
    sandbox: Sandbox, operator: OperatorProcess, stage: Stage
) -> None:
    with listening(sandbox) as listener:
        stage.reserve(ttl="10m")
        uid = stage.wait_until_proven().metadata.uid
        eventually("it begins", lambda: uid in listener.begun, seconds=LONG_SECONDS)
        patch(stage, {"metadata": {"labels": {"seen": "true"}}})
        eventually("all is heard", lambda: listener.knows(stage), seconds=LONG_SECONDS)

        listener.begun.clear()
        patch(stage, {"metadata": {"labels": {"seen": "again"}}})
        eventually("all is heard", lambda: listener.knows(stage), seconds=LONG_SECONDS)
        assert listener.begun == [], "only a spec is a change"

        patch(stage, {"spec": {"ttl": "20m"}})
        eventually("the changed spec is told", lambda: uid in listener.begun, seconds=LONG_SECONDS)
        eventually("and answered", lambda: stage.read().status.observed_generation == 2, seconds=LONG_SECONDS)
    with listening(sandbox) as after_a_restart:
        eventually("it is resumed", lambda: uid in after_a_restart.begun, seconds=LONG_SECONDS)
        assert after_a_restart.has_heard(None)
        stage.client.delete(RESERVATIONS, "place", namespace=stage.namespace)
        eventually("its end is heard", lambda: after_a_restart.has_heard("DELETED"), seconds=LONG_SECONDS)
    assert operator.exit_code is None


def patch(stage: Stage, body: dict[str, Any]) -> None:
    stage.client.merge_patch(RESERVATIONS, "place", body, namespace=stage.namespace)


FATAL: Final = {"of a watch": is_watch, "of a list and of a watch": any_read}


@pytest.mark.deep
@pytest.mark.parametrize("refuses", FATAL.values(), ids=FATAL.keys())
def test_an_answer_that_ends_kopf_does_not_end_the_operator(
    operator: OperatorProcess, proxy: FaultProxy, stage: Stage, refuses: Callable[[Call], bool]
) -> None:
    pid = operator.pid
    stage.reserve("before", nodes=[stage.nodes[0]])
    stage.wait_until_proven("before")
    proxy.plan = Refused(FaultKind.CONFLICT, refuses)
    proxy.journal.clear()
    proxy.cut_watches()
    eventually("kopf was refused and has begun anew", lambda: refusals(proxy) >= 2, seconds=LONG_SECONDS)
    assert ask(operator, "/healthz")[0] == ask(operator, "/readyz")[0] == 200
    stage.client.delete(RESERVATIONS, "before", namespace=stage.namespace)
    stage.reserve("meanwhile", nodes=[stage.nodes[1]])
    proxy.plan = NoFaults()

    stage.wait_for(ReservationPhase.AVAILABLE, "meanwhile", seconds=LONG_SECONDS)
    stage.wait_until_empty("before", seconds=LONG_SECONDS)
    stage.reserve("after", nodes=[stage.nodes[0]])
    stage.wait_for(ReservationPhase.AVAILABLE, "after", seconds=LONG_SECONDS)
    assert (operator.pid, operator.exit_code) == (pid, None)


def refusals(proxy: FaultProxy) -> int:
    return sum(fault.kind is FaultKind.CONFLICT for _, fault in list(proxy.journal))


@pytest.mark.deep
@pytest.mark.timeout(LONGEST_SECONDS + 60)
def test_reservations_are_heard_again_after_their_kind_was_removed_and_installed_anew(
    removal_of_a_kind: BackgroundRun[int | None],
) -> None:
    assert removal_of_a_kind.result() is None, "the operator runs on"
