"""The proxy does to each call what its plan says, and nothing to the others."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from berth_core.errors import BerthError
from berth_kube.client import ClientSettings, KubeClient, connect
from berth_kube.errors import ConflictError, GoneError, ServerError, TooManyRequestsError, UnreachableError
from berth_kube.resources import PODS
from berth_kube.retries import NO_RETRIES
from berth_kube.watch_items import Changed, Listed
from fault_proxy import FaultProxy
from faults import BalancerFaultAt, BalancerFaults, Call, Fault, FaultKind, HoldPlan, LateWatch, SeededFaults
from scripted_server import ScriptedServer, Stream, answer, event, page

PATH = "/api/v1/namespaces/default/pods"
POD = {"metadata": {"name": "web-0", "namespace": "default", "uid": "u", "resourceVersion": "11"}}


@dataclass(frozen=True)
class Always:
    """Does one thing to every call."""

    fault: Fault

    def decide(self, call: Call) -> Fault:
        return Fault() if call.is_watch else self.fault

    def hold(self, call: Call) -> None:
        """Hold nothing."""


class Forgetful:
    """Has the server forget the place of every watch."""

    def decide(self, call: Call) -> Fault:
        return Fault(FaultKind.GONE if call.is_watch else FaultKind.NONE)

    def hold(self, call: Call) -> None:
        """Hold nothing."""


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as started:
        started.on("GET", PATH, page(POD)).on("POST", PATH, answer(POD, 201))
        yield started


@pytest.fixture
def proxy(server: ScriptedServer, tmp_path: Path) -> Iterator[FaultProxy]:
    with FaultProxy(Path(server.kubeconfig(tmp_path))) as started:
        yield started


@pytest.fixture
def client(proxy: FaultProxy, tmp_path: Path) -> Iterator[KubeClient]:
    through = proxy.write_kubeconfig(tmp_path / "through.yaml")
    settings = ClientSettings(retries=NO_RETRIES)
    with connect(kubeconfig=str(through), request_timeout=60, settings=settings) as made:
        yield made


def test_calls_pass_with_their_body_and_credentials(server: ScriptedServer, client: KubeClient) -> None:
    client.create(PODS, POD, namespace="default")
    (seen,) = server.requests("POST", PATH)
    assert seen.json == POD
    assert {name.lower(): value for name, value in seen.headers.items()}["authorization"] == "Bearer secret"


REFUSALS: dict[FaultKind, type[BerthError]] = {
    FaultKind.TOO_MANY: TooManyRequestsError,
    FaultKind.SERVER_ERROR: ServerError,
    FaultKind.UNAVAILABLE: ServerError,
    FaultKind.CONFLICT: ConflictError,
    FaultKind.GONE: GoneError,
    FaultKind.RESET: UnreachableError,
    FaultKind.STALL: UnreachableError,
    FaultKind.NO_BACKEND: UnreachableError,
}


@pytest.mark.parametrize(("kind", "want"), REFUSALS.items(), ids=REFUSALS.keys())
def test_a_call_that_is_refused_is_not_carried_out(
    server: ScriptedServer, proxy: FaultProxy, client: KubeClient, kind: FaultKind, want: type[BerthError]
) -> None:
    proxy.plan = Always(Fault(kind, 0.1))
    with pytest.raises(want):
        client.create(PODS, POD, namespace="default")
    assert server.requests("POST", PATH) == []
    assert [(str(call), fault.kind) for call, fault in proxy.journal] == [(f"POST {PATH}", kind)]


def test_connections_are_accepted_and_closed_while_the_balancer_has_no_backend(
    server: ScriptedServer, proxy: FaultProxy, client: KubeClient
) -> None:
    client.list(PODS, namespace="default")
    proxy.lose_backend(3600)
    for _ in range(2):  # on the connection that is there, and on a new one
        with pytest.raises(UnreachableError, match=r"the connection was c(ut|losed)") as caught:
            client.list(PODS, namespace="default")
        assert caught.value.acted
    proxy.lose_backend(0)
    client.list(PODS, namespace="default")
    assert len(server.requests("GET", PATH)) == 2


def test_the_balancer_loses_its_backends_time_after_time() -> None:
    plan = BalancerFaults(calls=3, seconds=0.5)
    kinds = [plan.decide(Call("GET", PATH)).kind for _ in range(6)]
    assert [kind is FaultKind.NO_BACKEND for kind in kinds] == [False, False, True, False, False, True]
    assert plan.decide(Call("GET", PATH, "watch=true")) == Fault()


def test_the_balancer_loses_its_backends_at_one_call() -> None:
    plan = BalancerFaultAt(lambda call: call.method == "POST", seconds=0.5)
    kinds = [plan.decide(Call(method, PATH)).kind for method in ("GET", "POST", "POST")]
    assert kinds == [FaultKind.NONE, FaultKind.NO_BACKEND, FaultKind.NONE]
    assert plan.has_happened


def test_a_lost_answer_is_that_of_a_call_that_was_carried_out(
    server: ScriptedServer, proxy: FaultProxy, client: KubeClient
) -> None:
    proxy.plan = Always(Fault(FaultKind.LOST_ANSWER))
    with pytest.raises(UnreachableError):
        client.create(PODS, POD, namespace="default")
    assert len(server.requests("POST", PATH)) == 1


def test_a_delayed_call_is_carried_out_later(proxy: FaultProxy, client: KubeClient) -> None:
    proxy.plan = Always(Fault(FaultKind.DELAY, 0.3))
    started = time.monotonic()
    client.create(PODS, POD, namespace="default")
    assert time.monotonic() - started >= 0.3


@dataclass(frozen=True)
class Case:
    kind: FaultKind
    want_seen: tuple[int, int]
    """How often the server has seen the call while it is held, and afterwards."""
    want_answers: int


HOLDS = {
    "before it is carried out": Case(FaultKind.HOLD_BEFORE, (0, 0), 0),
    "after it was carried out": Case(FaultKind.HOLD_AFTER, (1, 1), 0),
    "until it may go on": Case(FaultKind.PAUSE, (0, 1), 1),
}


@pytest.mark.parametrize("case", HOLDS.values(), ids=HOLDS.keys())
def test_the_first_call_of_a_kind_is_held(
    server: ScriptedServer, proxy: FaultProxy, client: KubeClient, case: Case
) -> None:
    proxy.plan = plan = HoldPlan(lambda call: call.method == "POST", case.kind)
    answers: list[object] = []

    def create() -> None:
        try:
            answers.append(client.create(PODS, POD, namespace="default"))
        except UnreachableError:
            return

    thread = threading.Thread(target=create)
    thread.start()
    assert plan.held.reached.wait(30)
    assert len(server.requests("POST", PATH)) == case.want_seen[0]
    assert client.list(PODS, namespace="default").items == (POD,)
    plan.held.released.set()
    thread.join(30)
    assert len(server.requests("POST", PATH)) == case.want_seen[1]
    assert len(answers) == case.want_answers
    client.create(PODS, POD, namespace="default")


def test_a_watch_that_is_cut_is_taken_up_again(server: ScriptedServer, proxy: FaultProxy, client: KubeClient) -> None:
    server.on("WATCH", PATH, Stream([event("MODIFIED", POD)]))
    stop = threading.Event()
    items = client.watch(PODS, namespace="default", stop=stop)
    assert isinstance(next(items), Listed)
    assert isinstance(next(items), Changed)
    assert proxy.open_watches == 1
    assert proxy.cut_watches() == 1
    assert isinstance(next(items), Changed)
    stop.set()
    assert len(server.requests("WATCH", PATH)) == 2
    assert len(server.requests("GET", PATH)) == 1


def test_a_watch_of_one_collection_is_late_and_others_are_not(
    server: ScriptedServer, proxy: FaultProxy, client: KubeClient
) -> None:
    later = {"metadata": {**POD["metadata"], "resourceVersion": "12"}}
    server.on("WATCH", PATH, Stream([event("MODIFIED", POD), event("MODIFIED", later)]))
    proxy.plan = LateWatch("pods", 0.5)
    versions, began = [], time.monotonic()
    for item in client.watch(PODS, namespace="default", stop=threading.Event()):
        if isinstance(item, Changed):
            versions.append(item.item["metadata"]["resourceVersion"])
        if len(versions) == 2:
            break
    assert versions == ["11", "12"]
    assert time.monotonic() - began >= 0.5

    of_nodes = Call("GET", "/api/v1/nodes", "watch=true")
    assert [plan.decide(of_nodes).kind for plan in (LateWatch("pods", 1), LateWatch("nodes", 1))] == [
        FaultKind.NONE,
        FaultKind.LAG,
    ]
    assert LateWatch("pods", 1).decide(Call("GET", PATH)).kind is FaultKind.NONE


def test_a_watch_whose_place_is_forgotten_lists_anew(
    server: ScriptedServer, proxy: FaultProxy, client: KubeClient
) -> None:
    server.on("WATCH", PATH, Stream())
    proxy.plan = Forgetful()
    stop = threading.Event()
    items = client.watch(PODS, namespace="default", stop=stop)
    assert [type(next(items)) for _ in range(2)] == [Listed, Listed]
    stop.set()
    assert server.requests("WATCH", PATH) == []


def test_a_seed_draws_the_same_again_and_only_what_a_call_can_meet() -> None:
    read, write, watch = Call("GET", PATH), Call("POST", PATH), Call("GET", PATH, "watch=true")
    plans = [SeededFaults(seed, rate=0.5, watch_rate=0.5) for seed in (7, 7, 8)]
    drawn = [[plan.decide(call) for call in [read, write, watch] * 200] for plan in plans]
    assert drawn[0] == drawn[1] != drawn[2]
    of_reads, of_writes, of_watches = ({fault.kind for fault in drawn[0][offset::3]} for offset in range(3))
    assert of_watches == {FaultKind.NONE, FaultKind.CUT, FaultKind.GONE, FaultKind.RESET}
    assert of_writes - of_reads == {FaultKind.CONFLICT}
    assert FaultKind.CUT not in of_writes
