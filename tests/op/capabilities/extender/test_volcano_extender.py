"""Volcano's scheduler is told to evict no placeholder, and keeps its say over all other pods."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import aiohttp
import msgspec
import pytest
from click.testing import CliRunner

from api_server_in_memory import ApiServerInMemory
from berth_core import Pod
from berth_core.errors import InputError
from berth_core.labels import PLACEHOLDER_LABEL, QUEUE_ANNOTATION, RESERVATION_LABEL
from berth_core.pod_groups import GROUP_NAME_ANNOTATION
from berth_core.reservations import (
    Capacity,
    ObjectReference,
    Reservation,
    ReservationOwner,
    ReservationPhase,
    ReservationState,
    ReservationStatus,
    Slot,
    SlotState,
)
from berth_core.resources import ResourceAmounts
from berth_operator.capabilities.extender.act import Extender
from berth_operator.capabilities.extender.held_places import LET_IN_SECONDS, HeldPlaces
from berth_operator.capabilities.extender.server import ENQUEUEABLE, OVERUSED, VERBS, VolcanoExtender
from berth_operator.capabilities.extender.settings import ExtenderSettings
from berth_operator.capabilities.extender.verbs import (
    Held,
    choose_victims,
    judge_queue,
    uncounted_by_queue,
    vote_on_job,
)
from berth_operator.cli import main
from berth_operator.metrics import REGISTRY
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.events import EventRecorder
from berth_operator.reservation.store.cache import Cache
from berth_operator.settings import OperatorSettings
from builders import NOON, FakeClock, pod, reservation, task
from capability_kernels import build_kernel

OURS = "berth-system"


def candidate(name: str, *, namespace: str = "default", placeholder: bool = False) -> dict[str, Any]:
    """A task as Volcano writes it: Go's field names, with the whole pod."""
    labels = {PLACEHOLDER_LABEL: "true"} if placeholder else {"app": "web"}
    pod = {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {"nodeName": "node-a"}}
    return {"UID": f"uid-{name}", "Job": f"{namespace}/{name}", "Resreq": {"MilliCPU": 1000.5}, "Pod": pod}


def request(*evictees: dict[str, Any] | None) -> bytes:
    return msgspec.json.encode({"evictor": candidate("hungry"), "evictees": evictees})


HELD = candidate("held", namespace=OURS, placeholder=True)
OTHER = candidate("other")

ANSWERS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "a placeholder is left out": (request(HELD, OTHER), {"status": 1, "victims": [OTHER]}),
    "placeholders alone: nothing may be evicted": (request(HELD, HELD), {"status": 1, "victims": []}),
    "no placeholder: it has no part in the decision": (request(OTHER), {"status": 0, "victims": []}),
    "no candidate at all": (request(), {"status": 0, "victims": []}),
    "null, as Go writes an empty list": (b'{"evictor": null, "evictees": null}', {"status": 0, "victims": []}),
    "a label of ours in another namespace makes no placeholder": (
        request(candidate("sly", placeholder=True)),
        {"status": 0, "victims": []},
    ),
    "another pod of our namespace": (request(candidate("operator", namespace=OURS)), {"status": 0, "victims": []}),
    "a candidate without a pod": (request({"UID": "x", "Pod": None}), {"status": 0, "victims": []}),
}


@pytest.mark.parametrize(("body", "want"), ANSWERS.values(), ids=ANSWERS.keys())
def test_victims_are_the_candidates_that_hold_no_place(body: bytes, want: dict[str, Any]) -> None:
    answer = choose_victims(body, OURS)
    assert msgspec.json.decode(msgspec.json.encode(answer)) == want


def deep_candidate(levels: int) -> bytes:
    """A task whose pod has such managed fields as whoever may create it may write."""
    raw = msgspec.json.encode(candidate("deep"))
    return raw.replace(
        b'"name"', b'"managedFields":[{"fieldsV1":' + b'{"a":' * levels + b"1" + b"}" * levels + b'}],"name"', 1
    )


@pytest.mark.parametrize("levels", [50, 700, 1_500, 9_900])
def test_a_pod_with_deep_managed_fields_is_a_candidate_as_any_other(levels: int) -> None:
    evictees = b",".join([msgspec.json.encode(HELD), deep_candidate(levels), msgspec.json.encode(OTHER)])
    answer = choose_victims(b'{"evictees":[' + evictees + b"]}", OURS)
    assert answer.status == 1
    assert [b'"name":"deep"' in raw for raw in map(bytes, answer.victims)] == [True, False]
    assert msgspec.json.decode(bytes(answer.victims[1])) == OTHER
    alone = choose_victims(b'{"evictees":[' + deep_candidate(levels) + b"]}", OURS)
    assert (alone.status, alone.victims) == (0, ())
    member_of_job = b'{"job":{"MinAvailable":1,"Tasks":{"uid":' + deep_candidate(levels) + b"}}}"
    assert vote_on_job(member_of_job, has_slot, awaits, OURS).status == 0


NO_REQUESTS = {
    "no JSON": b"hello",
    "nothing": b"",
    "a list": b"[]",
    "candidates that are no tasks": b'{"evictees": [1]}',
    "bytes that are no text": b'{"evictees": [{"Pod": {"metadata": {"namespace": "\xff"}}}]}',
}


@pytest.mark.parametrize("body", NO_REQUESTS.values(), ids=NO_REQUESTS.keys())
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(InputError):
        choose_victims(body, OURS)


# --- jobs that wait to be let in


@pytest.mark.parametrize("tasks", [{}, None])
def test_a_job_without_pods_is_let_in_once_it_has_waited(tasks: dict[str, Any] | None) -> None:
    def old(created: str) -> bool:
        return created == "2026-11-21T11:00:00Z"

    def vote(**job: Any) -> int:  # noqa: ANN401 - a field of the job
        body = msgspec.json.encode({"job": {"MinAvailable": 2, **job}})
        return vote_on_job(body, has_slot, awaits, OURS, has_waited=old).status

    assert vote(Tasks=tasks, CreationTimestamp="2026-11-21T11:00:00Z") == 1
    assert vote(Tasks=tasks, CreationTimestamp="2026-11-21T11:59:00Z") == 0
    assert vote(Tasks=tasks, CreationTimestamp=None) == 0
    assert vote(Tasks={"a": member("a")}, CreationTimestamp="2026-11-21T11:00:00Z") == 0


@pytest.mark.parametrize(("after", "want"), [(None, False), (timedelta(minutes=10), True), (timedelta(hours=2), False)])
def test_how_long_a_job_waits_is_set(after: timedelta | None, want: bool) -> None:  # noqa: FBT001 - a case
    clock = FakeClock(NOON)
    settings = OperatorSettings(capabilities=(ExtenderSettings(("127.0.0.1", 0), after),))
    client = ApiServerInMemory().as_client()
    context = Context(client, Cache(lambda _key: None), settings, clock)
    extender = Extender(
        build_kernel(context, recorder=EventRecorder(client), leads=bool, enqueue=lambda _key, _s: None)
    )
    assert extender._has_waited("2026-11-21T11:00:00Z") is want


def test_a_wait_that_is_no_duration_is_refused() -> None:
    result = CliRunner().invoke(main, ("--volcano-enqueue-after", "soon"))
    assert "--volcano-enqueue-after is 'soon'" in result.stderr


def has_slot(reservation: str, pod: str) -> bool:
    return (reservation, pod) in {("uid-place", "uid-owner"), ("uid-place", "uid-second")}


def awaits(reservation: str) -> bool:
    return reservation == "uid-waits"


def held(name: str, *, reservation: str = "uid-waits", namespace: str = OURS) -> dict[str, Any]:
    labels = {RESERVATION_LABEL: reservation, PLACEHOLDER_LABEL: "true"}
    return {"UID": f"uid-{name}", "Pod": {"metadata": {"name": name, "namespace": namespace, "labels": labels}}}


def member(name: str, *, reservation: str = "", node: str = "") -> dict[str, Any]:
    labels = {RESERVATION_LABEL: reservation} if reservation else {}
    metadata = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "labels": labels}
    return {"UID": f"uid-{name}", "Pod": {"metadata": metadata, "spec": {"nodeName": node} if node else {}}}


def job(*members: dict[str, Any], minimum: int = 1) -> bytes:
    tasks = {one["UID"]: one for one in members}
    return msgspec.json.encode({"job": {"Name": "train", "MinAvailable": minimum, "Tasks": tasks or None}})


OWNER, SECOND = member("owner", reservation="uid-place"), member("second", reservation="uid-place")

VOTES: dict[str, tuple[bytes, int]] = {
    "a pod that a slot is handed to comes in": (job(OWNER), 1),
    "so does a gang that the slots suffice for": (job(OWNER, SECOND, member("rest"), minimum=2), 1),
    "or the slots with what runs already": (job(OWNER, member("runs", node="node-a"), minimum=2), 1),
    "a gang that needs more than is held is for others to judge": (job(OWNER, member("rest"), minimum=2), 0),
    "a pod without a slot": (job(member("hungry")), 0),
    "a pod that only says that it has one": (job(member("liar", reservation="uid-place")), 0),
    "an owner that runs already makes no room for its job's others": (
        job(member("owner", reservation="uid-place", node="node-a"), member("rest")),
        0,
    ),
    "a placeholder that awaits capacity comes in, whatever waits": (job(held("slot")), 1),
    "so do those of one group": (job(held("slot"), held("next"), minimum=2), 1),
    "one that waits for what is free is for others to judge": (job(held("slot", reservation="uid-place")), 0),
    "and so is a pod of a tenant that says it is one": (job(held("liar", namespace="ml")), 0),
    "nor does a placeholder take others in": (job(held("slot"), member("hungry")), 0),
    "a job without pods": (job(), 0),
    "nothing": (b'{"job": null}', 0),
}


@pytest.mark.parametrize(("body", "want"), VOTES.values(), ids=VOTES.keys())
def test_a_job_is_let_in_if_held_slots_suffice_for_it(body: bytes, want: int) -> None:
    assert vote_on_job(body, has_slot, awaits, OURS).status == want


# --- jobs whose pods come once they are let in

JOB: Final = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "uid": "uid-train"}
BY_NAME: Final = ObjectReference(kind="Job", name="train")
IN_WINDOW: Final = {"volcano.sh/reserveable": "true"}


def kept_out(
    name: str = "train",
    *,
    pods: int = 2,
    namespace: str = "default",
    requests: dict[str, str] | None = None,
    inline: bool = False,
    **meta: Any,  # noqa: ANN401 - fields of the metadata
) -> bytes:
    """A job without pods as Volcano sends it; some versions write the metadata of its PodGroup inline."""
    meta = {"name": "train-pg", "annotations": None, "ownerReferences": [{**JOB, "controller": True}], **meta}
    min_resources = {"cpu": str(pods)} if requests is None else requests
    group = {**(meta if inline else {"metadata": meta}), "spec": {"minMember": pods, "minResources": min_resources}}
    of_job = {"Name": name, "Namespace": namespace, "MinAvailable": pods, "Tasks": {}, "PodGroup": group}
    return msgspec.json.encode({"job": of_job})


def holding(
    count: int, *, owner: ReservationOwner | None = None, phase: ReservationPhase = ReservationPhase.AVAILABLE
) -> Reservation:
    """A Reservation with so many held slots of 1 cpu, and one that is not held yet."""
    slots = [Slot(task="web", index=index, state=SlotState.HELD, node="node-a") for index in range(count)]
    slots.append(Slot(task="web", index=count, state=SlotState.PENDING))
    return reservation(
        tasks=[task(replicas=count + 1, cpu="1")],
        owners=[owner or ReservationOwner(object=BY_NAME)],
        status=ReservationStatus(slots=tuple(slots), state=ReservationState(phase=phase)),
    )


KEPT_OUT: dict[str, tuple[bytes, Reservation, bool]] = {
    "as many places as it needs are held for it": (kept_out(), holding(2), True),
    "the same as other versions write it": (kept_out(inline=True), holding(2), True),
    "fewer are": (kept_out(pods=3), holding(2), False),
    "they are for another": (
        kept_out(),
        holding(2, owner=ReservationOwner(object=ObjectReference(kind="Job", name="other"))),
        False,
    ),
    "they are for one of its name that is gone": (
        kept_out(),
        holding(2, owner=ReservationOwner(object=ObjectReference(kind="Job", name="train", uid="uid-before"))),
        False,
    ),
    "they are of another namespace": (kept_out(namespace="ml"), holding(2), False),
    "its pods request as much": (kept_out(requests={"cpu": "2", "pods": "2"}), holding(2), True),
    "its pods request more": (kept_out(requests={"cpu": "2500m"}), holding(2), False),
    "its pods request a device that is not held": (
        kept_out(requests={"cpu": "2", "nvidia.com/gpu": "32"}),
        holding(2),
        False,
    ),
    "its pods request no device": (kept_out(requests={"cpu": "2", "nvidia.com/gpu": "0"}), holding(2), True),
    "its pods request memory that is not held": (kept_out(requests={"memory": "1Gi"}), holding(2), False),
    "its pods request as much in the names of a quota": (
        kept_out(requests={"requests.cpu": "2", "limits.cpu": "64", "count/pods": "2", "pods": "2"}),
        holding(2),
        True,
    ),
    "its pods request more in the names of a quota": (kept_out(requests={"requests.cpu": "4000"}), holding(2), False),
    "its pods request a device in the names of a quota": (
        kept_out(requests={"cpu": "2", "requests.nvidia.com/gpu": "8"}),
        holding(2),
        False,
    ),
    "it does not say what its pods request": (kept_out(requests={}), holding(2), False),
    "it says how many pods only": (kept_out(requests={"pods": "2"}), holding(2), False),
    "it says what nobody can read": (kept_out(requests={"cpu": "two"}), holding(2), False),
    "it may take places of a window": (
        kept_out(annotations=IN_WINDOW),
        holding(2, owner=ReservationOwner(annotations=IN_WINDOW)),
        True,
    ),
    "it does not say that it may": (kept_out(), holding(2, owner=ReservationOwner(annotations=IN_WINDOW)), False),
    "what held them is over": (kept_out(), holding(2, phase=ReservationPhase.FAILED), False),
}


@pytest.mark.parametrize(("body", "kept", "want"), KEPT_OUT.values(), ids=KEPT_OUT)
def test_a_job_without_pods_is_let_in_where_places_are_held_for_it(
    body: bytes, kept: Reservation, *, want: bool
) -> None:
    places = HeldPlaces(FakeClock())
    vote = vote_on_job(body, has_slot, awaits, OURS, holds=lambda job: places.hold_for(job, [kept]))
    assert vote.status == int(want)


def test_jobs_without_pods_are_let_in_for_places_that_no_other_was_let_in_for() -> None:
    clock, kept = FakeClock(), holding(10, owner=ReservationOwner(annotations=IN_WINDOW))
    places = HeldPlaces(clock)

    def votes(jobs: int, pods: int, cpu: str = "", first: int = 0) -> int:
        bodies = (
            kept_out(
                f"job-{index}",
                pods=pods,
                requests={"cpu": cpu or str(pods)},
                annotations=IN_WINDOW,
                ownerReferences=None,
            )
            for index in range(first, first + jobs)
        )
        return sum(
            vote_on_job(body, has_slot, awaits, OURS, holds=lambda job: places.hold_for(job, [kept])).status
            for body in bodies
        )

    assert votes(500, pods=3) == 3, "of 10 places"
    assert votes(500, pods=3) == 3, "the same are let in as often as Volcano asks"
    assert votes(1, pods=1, first=500) == 1, "the last place is for a small one"
    assert votes(1, pods=1, first=501) == 0
    clock.sleep(LET_IN_SECONDS)
    assert votes(500, pods=1, cpu="4", first=600) == 2, "of 10 cpu, once the pods of the others had time to come"


def test_a_job_that_may_use_several_windows_uses_one() -> None:
    owner = ReservationOwner(annotations=IN_WINDOW)
    small, large = holding(1, owner=owner), holding(4, owner=owner)
    large = msgspec.structs.replace(large, metadata=msgspec.structs.replace(large.metadata, uid="uid-large"))
    places = HeldPlaces(FakeClock())

    def vote(name: str, pods: int) -> int:
        body = kept_out(name, pods=pods, annotations=IN_WINDOW, ownerReferences=None)
        return vote_on_job(body, has_slot, awaits, OURS, holds=lambda job: places.hold_for(job, [small, large])).status

    assert [vote("a", 4), vote("b", 1), vote("c", 1), vote("a", 4)] == [1, 1, 0, 1]


@pytest.mark.asyncio
async def test_the_vote_is_given_over_http_and_what_cannot_be_read_gets_none() -> None:
    before = {verdict: counted(ENQUEUEABLE, verdict) for verdict in ("permitted", "abstained", "refused")}
    async with serving() as base, aiohttp.ClientSession() as session:
        for body, status in ((job(OWNER), 1), (job(member("hungry")), 0), (b"hello", 0)):
            async with session.post(f"{base}/{ENQUEUEABLE}", data=body) as response:
                assert response.status == 200
                assert await response.json() == {"status": status}
    assert {one: counted(ENQUEUEABLE, one) - count for one, count in before.items()} == dict.fromkeys(before, 1.0)


# --- queues


def queue(capability: dict[str, str] | None, allocated: dict[str, str] | None = None, name: str = "ml") -> bytes:
    """A queue as Volcano writes it: Go's field names, with the whole object."""
    spec = {"weight": 1} | ({"capability": capability} if capability is not None else {})
    body = {"metadata": {"name": name}, "spec": spec, "status": {"state": "Open", "allocated": allocated}}
    return msgspec.json.encode({"queue": {"UID": name, "Name": name, "Weight": 1, "Queue": body}})


GPU = "nvidia.com/gpu"
HELD_THINGS = {
    "ml": Held(ResourceAmounts({"cpu": 2000, "memory": 2 << 30, GPU: 1})),
    "letting": Held(ResourceAmounts({"cpu": 2000}), lets_in=True),
}

OVERUSES: dict[str, tuple[bytes, bool]] = {
    "what is held fills its cpu up": (queue({"cpu": "8", "memory": "64Gi"}, {"cpu": "6", "memory": "8Gi"}), True),
    "or its memory": (queue({"cpu": "80", "memory": "16Gi"}, {"cpu": "6", "memory": "14Gi"}), True),
    "a thousandth is left": (queue({"cpu": "8001m", "memory": "64Gi"}, {"cpu": "6", "memory": "8Gi"}), False),
    "what is held suffices by itself": (queue({"cpu": "1"}), True),
    "a capability of nothing": (queue({"cpu": "0"}, {}), True),
    "a queue whose GPUs are in use has room for pods without": (queue({"cpu": "80", GPU: "8"}, {GPU: "7"}), False),
    "unless it is a queue of nothing but GPUs": (queue({GPU: "8"}, {GPU: "7"}), True),
    "a resource of which nothing is held is Volcano's to count": (queue({"pods": "3"}, {"pods": "5"}), False),
    "a queue in whose name nothing is held": (queue({"cpu": "8"}, {"cpu": "9"}, "other"), False),
    "the owner of a slot must be let in": (queue({"cpu": "2"}, {"cpu": "2"}, "letting"), False),
    "a queue without a capability": (queue(None, {"cpu": "999"}), False),
    "a queue without an object": (b'{"queue": {"Name": "ml", "Queue": null}}', False),
    "nothing": (b'{"queue": null}', False),
}


def held_in(name: str) -> Held:
    return HELD_THINGS.get(name, Held())


@pytest.mark.parametrize(("body", "want"), OVERUSES.values(), ids=OVERUSES.keys())
def test_a_queue_is_overused_when_what_is_held_in_its_name_uses_it_up(body: bytes, want: bool) -> None:  # noqa: FBT001 - the case
    assert judge_queue(body, held_in).overused is want


def placeholder(*, queue: str = "ml", node: str = "node-a", group: str = "", phase: str = "Running") -> Pod:
    notes = {QUEUE_ANNOTATION: queue} if queue else {}
    notes |= {GROUP_NAME_ANNOTATION: group} if group else {}
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1500m", GPU: "1"}}}]
    spec = {"containers": containers} | ({"nodeName": node} if node else {})
    body = {"metadata": {"name": "p", "uid": "uid-p", "annotations": notes}, "spec": spec, "status": {"phase": phase}}
    return msgspec.convert(body, Pod)


def test_placeholders_count_in_the_queue_that_they_name_unless_volcano_counts_them() -> None:
    there = [
        placeholder(),
        placeholder(),
        placeholder(queue="web"),
        placeholder(queue=""),
        placeholder(group="berth-1"),
        placeholder(node="", phase="Pending"),
        placeholder(phase="Failed"),
    ]
    one = ResourceAmounts({"cpu": 1500, GPU: 1})
    assert uncounted_by_queue(there) == {"ml": one.times(2), "web": one}


@pytest.fixture
def extender() -> Iterator[tuple[Extender, Cache, FakeClock]]:
    """Yield an extender that is not started."""
    client, cache, clock = ApiServerInMemory().as_client(), Cache(lambda _: None), FakeClock()
    context = Context(client, cache, OperatorSettings(), clock)
    made = Extender(
        build_kernel(context, recorder=EventRecorder(client), leads=lambda: False, enqueue=lambda _key, _seconds: None)
    )
    yield made, cache, clock
    asyncio.run(made.stop())


@pytest.mark.parametrize(
    ("group", "node", "want"),
    [("web", "", True), ("web", "node-b", False), ("", "", False)],
    ids=["a slot is being handed to a pod of Volcano", "which has its node by now", "a pod of the stock scheduler"],
)
def test_what_a_replica_says_of_a_queue_comes_from_its_own_watches(
    extender: tuple[Extender, Cache, FakeClock],
    group: str,
    node: str,
    want: bool,  # noqa: FBT001 - the case
) -> None:
    answers, cache, clock = extender
    cache.put_placeholder(placeholder())
    one = {"cpu": 1500, GPU: 1}
    assert answers._held_in("ml") == Held(ResourceAmounts(one))
    assert answers._held_in("other") == Held()

    owner = pod(
        "owner",
        node=node,
        labels={RESERVATION_LABEL: "uid-default-place"},
        annotations={GROUP_NAME_ANNOTATION: group} if group else {},
    )
    given = Slot(
        task="pod",
        index=0,
        state=SlotState.HANDING_OVER,
        owner=ObjectReference(kind="Pod", name="owner", uid=owner.metadata.uid),
    )
    cache.put_reservation(reservation("place", queue="ml", status=ReservationStatus(slots=(given,))))
    cache.put_owner(owner)
    assert not answers._held_in("ml").lets_in, "it adds up what there is twice a second, and not for each question"
    clock.sleep(1)
    assert answers._held_in("ml") == Held(ResourceAmounts(one), lets_in=want)


def test_whether_a_reservation_awaits_capacity_comes_from_its_spec(extender: tuple[Extender, Cache, FakeClock]) -> None:
    answers, cache, _ = extender
    for name, capacity in (("waits", Capacity.WHEN_FREE), ("place", Capacity.FREE)):
        cache.put_reservation(reservation(name, capacity=capacity))
    found = ("uid-default-waits", "uid-default-place", "uid-of-another")
    assert [answers._awaits(uid) for uid in found] == [True, False, False]


@pytest.mark.asyncio
async def test_overuse_is_said_over_http_and_what_cannot_be_read_is_none() -> None:
    before = {verdict: counted(OVERUSED, verdict) for verdict in ("overused", "abstained", "refused")}
    odd = queue({"cpu": "many"})
    async with serving() as base, aiohttp.ClientSession() as session:
        for body, overused in ((queue({"cpu": "1"}), True), (queue({"cpu": "9"}), False), (odd, False)):
            async with session.post(f"{base}/{OVERUSED}", data=body) as response:
                assert response.status == 200
                assert await response.json() == {"overused": overused}
    assert {one: counted(OVERUSED, one) - count for one, count in before.items()} == dict.fromkeys(before, 1.0)


# --- over HTTP


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """Yield the address of an extender that listens."""
    extender = VolcanoExtender(("127.0.0.1", 0), OURS, has_slot=has_slot, awaits=awaits, held_in=held_in)
    await extender.start()
    try:
        yield f"http://{extender.address}"
    finally:
        await extender.stop()


def counted(verb: str, verdict: str) -> float:
    return REGISTRY.get_sample_value("berth_volcano_extender_answers_total", {"verb": verb, "verdict": verdict}) or 0.0


@pytest.mark.asyncio
@pytest.mark.parametrize("verb", VERBS)
async def test_each_verb_is_answered_over_http_and_counted(verb: str) -> None:
    before = {verdict: counted(verb, verdict) for verdict in ("spared", "abstained", "refused")}
    async with serving() as base, aiohttp.ClientSession() as session:
        for body, status in ((request(HELD, OTHER), 200), (request(OTHER), 200), (b"hello", 400)):
            async with session.post(f"{base}/{verb}", data=body) as response:
                assert response.status == status
                if body == request(HELD, OTHER):
                    assert await response.json() == {"status": 1, "victims": [OTHER]}
    assert {verdict: counted(verb, verdict) - count for verdict, count in before.items()} == dict.fromkeys(before, 1.0)


@pytest.mark.asyncio
async def test_other_paths_and_methods_are_refused() -> None:
    async with serving() as base, aiohttp.ClientSession() as session:
        for path, want in (("jobReady", 404), ("", 404)):
            async with session.post(f"{base}/{path}", data=request()) as response:
                assert response.status == want
        async with session.get(f"{base}/preemptable") as response:
            assert response.status == 405


@pytest.mark.asyncio
async def test_an_address_that_is_taken_is_said_so() -> None:
    async with serving() as base:
        taken = ("127.0.0.1", int(base.rpartition(":")[2]))
        with pytest.raises(InputError, match="--volcano-extender-address"):
            await VolcanoExtender(taken, OURS, has_slot=has_slot, awaits=awaits, held_in=held_in).start()


def test_an_address_without_a_port_is_told_in_one_line() -> None:
    result = CliRunner().invoke(main, ("--volcano-extender-address", "localhost"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--volcano-extender-address is 'localhost'" in result.stderr


@pytest.mark.asyncio
async def test_the_extender_listens_on_both_families() -> None:
    extender = VolcanoExtender(("::", 0), OURS, has_slot=has_slot, awaits=awaits, held_in=held_in)
    await extender.start()
    try:
        port = int(extender.address.removeprefix("[::]:"))
        async with aiohttp.ClientSession() as session:
            for address in ("127.0.0.1", "[::1]"):
                async with session.post(f"http://{address}:{port}/{OVERUSED}", data=b"hello") as answer:
                    assert answer.status == 200
    finally:
        await extender.stop()
