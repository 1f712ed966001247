"""Which jobs starve, and which nodes are kept for them."""

# ruff: noqa: ANN401 - a builder passes on what the case says

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace

from berth_core import (
    STARVING_JOB_LABEL,
    STARVING_JOBS,
    Capacity,
    Fence,
    InputError,
    Node,
    ObjectReference,
    OwnerReference,
    Pod,
    PodCondition,
    PodStatus,
    Reservation,
    Room,
    Snapshot,
    Taint,
    fenced_nodes,
)
from berth_core.reservations import (
    ReservationPhase,
    ReservationReason,
    ReservationState,
    ReservationStatus,
    Slot,
    SlotState,
)
from berth_descheduler.capabilities.starving_jobs.pending_jobs import find_pending_jobs
from berth_descheduler.capabilities.starving_jobs.plugin import StarvingJobs
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.plugins import default_plugins, settings_with
from builders import (
    NOON,
    bare_pod,
    label_owner,
    node,
    object_owner,
    owner,
    pod,
    pod_group,
    reservation,
    task,
    volcano_job,
    volcano_owner,
    volcano_pod_group,
    volcano_task,
    workload,
)
from planner.clusters import HOSTNAME, apart, selector, term
from properties import holds_for

LONG_AGO, LATER = "2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z"
JUST_NOW = "2026-11-21T11:59:00Z"
UNPLACED = (PodCondition(type="PodScheduled", status="False", reason="Unschedulable"),)
GROUP = "scheduling.k8s.io/group-name"


def waiting(
    name: str,
    *,
    cpu: str = "3",
    created: str = LONG_AGO,
    tried: bool = True,
    nominated: str = "",
    controller: OwnerReference | None = None,
    **rest: Any,
) -> Pod:
    """A pending pod; without a controller a job of its own."""
    build = bare_pod if controller is None else pod
    made = build(name, cpu=cpu, memory=None, created=created, controller=controller, **rest)
    status = PodStatus(phase="Pending", conditions=UNPLACED if tried else (), nominated_node_name=nominated)
    return replace(made, status=status)


def running(name: str, on: str, *, cpu: str = "1", ends: bool = True, started: str | None = None, **rest: Any) -> Pod:
    policy = "Never" if ends else "Always"
    build = pod if rest.get("controller") else bare_pod
    made = build(name, node=on, cpu=cpu, memory=None, restart_policy=policy, **rest)
    return replace(made, status=replace(made.status, start_time=started))


def settings(**args: Any) -> PlannerSettings:
    asked = {"starvingJobTimeThreshold": "30m", "reservedNodePercent": 100, "moves": "Never", **args}
    plugins = default_plugins()
    balance = Enabled(STARVING_JOBS, StarvingJobs.parse(asked))
    plugins = type(plugins)(balance=balance, filters=plugins.filters, pre_eviction_filters=plugins.pre_eviction_filters)
    return settings_with(PlannerSettings(plugins=plugins).at(NOON), plugins)


def planned(nodes: Sequence[Node], pods: Sequence[Pod], *more: Any, **args: Any) -> Plan:
    snapshot = Snapshot(
        nodes=tuple(nodes),
        pods=tuple(pods),
        reservations=tuple(one for one in more if isinstance(one, Reservation)),
        volcano_jobs=tuple(one for one in more if type(one).__name__ == "VolcanoJob"),
        pod_groups=tuple(one for one in more if type(one).__name__ == "PodGroup"),
        workloads=tuple(one for one in more if type(one).__name__ == "Workload"),
    )
    return plan(snapshot, settings(**_for_one_namespace(args)))


def _for_one_namespace(args: dict[str, Any]) -> dict[str, Any]:
    """Arguments under which the jobs of one namespace, as most are here, may have all that jobs may have."""
    return {"namespaceNodePercent": args.get("reservedNodePercent", 100), **args}


def nodes_of(room: Room) -> list[str]:
    return [slot.node for slot in room.slots]


def refusals(made: Plan) -> dict[str, RefusalReason]:
    return {one.name: one.reason for one in made.refused}


def small_node(name: str = "n1", cpu: str = "3", **rest: Any) -> Node:
    return node(name, cpu=cpu, **rest)


def full(name: str, cpus: int = 3, **rest: Any) -> list[Pod]:
    return [running(f"{name}-{number}", name, **rest) for number in range(cpus)]


def gang(size: int, *, minimum: int | None = None, cpu: str = "3", created: str = LONG_AGO) -> list[Any]:
    members = [waiting(f"train-{n}", cpu=cpu, created=created, annotations={GROUP: "train"}) for n in range(size)]
    return [since_long_ago(volcano_pod_group("train", min_member=size if minimum is None else minimum)), *members]


def since_long_ago(job: Any) -> Any:
    return replace(job, metadata=replace(job.metadata, creation_timestamp=LONG_AGO))


# --- which jobs starve -----------------------------------------------------------------------------------------------


def test_a_pod_that_waits_for_longer_than_the_threshold_gets_a_node_until_its_pods_have_ended() -> None:
    made = planned([small_node()], [*full("n1"), waiting("pod-4")])
    [room] = made.rooms
    assert (room.name, nodes_of(room), room.capacity, room.ttl) == (
        "default/pod-4",
        ["n1"],
        Capacity.WHEN_FREE,
        "24h0m0s",
    )
    assert room.job == ObjectReference(
        api_version="v1", kind="Pod", namespace="default", name="pod-4", uid="uid-default-pod-4"
    )
    assert made.moves == ()
    assert not made.does_nothing


@pytest.mark.parametrize(
    ("case", "pods"),
    [
        ("one that waits for no longer than the threshold", [waiting("young", created="2026-11-21T11:30:00Z")]),
        ("one that no scheduler has tried, for its scheduler may not run", [waiting("untried", tried=False)]),
        ("one with a nominated node, which it is about to get", [waiting("nominated", nominated="n1")]),
        ("one that a gate holds back", [waiting("gated", gates=["example.com/quota"])]),
        (
            "one of a controller with a pod that runs",
            [waiting("two", controller=owner()), running("one", "n2", controller=owner())],
        ),
    ],
)
def test_no_job_starves_that_is(case: str, pods: list[Pod]) -> None:
    made = planned([small_node(), small_node("n2", "1")], [*full("n1"), *pods])
    assert (made.rooms, made.refused) == ((), ()), case


def test_a_job_counts_from_its_first_waiting_pod_and_not_from_its_own_creation() -> None:
    old_job = workload("Job", "report")
    late = waiting("report-1", created=JUST_NOW, controller=owner("Job", "report"))
    assert planned([small_node()], [*full("n1"), late], old_job).rooms == ()


def test_a_gang_is_served_whole_or_not_at_all() -> None:
    nodes = [small_node("n1"), small_node("n2")]
    blocked = [*full("n1"), *full("n2")]
    group, *members = gang(2)
    [room] = planned(nodes, [*blocked, *members], group).rooms
    assert sorted(nodes_of(room)) == ["n1", "n2"]
    assert room.gang == "train"
    made = planned(nodes[:1], [*full("n1"), *members], group)
    assert made.rooms == ()
    assert refusals(made) == {"train-0": RefusalReason.RESERVED_NODE_PERCENT}


def test_a_gang_needs_no_more_than_its_minimum() -> None:
    group, *members = gang(3, minimum=2)
    placed = running("train-9", "n2", cpu="3", annotations={GROUP: "train"})
    nodes = [small_node("n1"), small_node("n2")]
    [room] = planned(nodes, [*full("n1"), placed, *members], group).rooms
    assert [slot.pod for slot in room.slots] == ["train-0"]


def test_a_gang_whose_pods_have_not_all_appeared_gets_nothing_yet() -> None:
    group, *members = gang(2, minimum=3)
    made = planned([small_node("n1"), small_node("n2")], [*full("n1"), *full("n2"), *members], group)
    assert (made.rooms, refusals(made)) == ((), {"train-0": RefusalReason.TOO_FEW_PODS})


def test_each_task_of_a_volcano_job_gets_what_it_needs_first() -> None:
    job = since_long_ago(
        volcano_job(volcano_task("ps", replicas=1), volcano_task("worker", replicas=2), min_available=3)
    )
    notes = [("ps", "z"), ("worker", "a"), ("worker", "b")]
    members = [
        waiting(f"train-{name}", annotations={"volcano.sh/task-spec": part}, controller=volcano_owner())
        for part, name in notes
    ]
    more = waiting("train-c", annotations={"volcano.sh/task-spec": "worker"}, controller=volcano_owner())
    nodes = [small_node(f"n{number}") for number in range(4)]
    blocked = [one for name in range(4) for one in full(f"n{name}")]
    [room] = planned(nodes, [*blocked, *members, more], job).rooms
    assert {slot.pod for slot in room.slots} == {"train-z", "train-a", "train-b"}


def test_a_job_with_its_minimum_starves_while_one_of_its_tasks_has_none() -> None:
    tasks = volcano_task("ps", replicas=1), volcano_task("worker", replicas=3, min_available=2)
    job = since_long_ago(volcano_job(*tasks, min_available=3))
    notes = {one: {"volcano.sh/task-spec": one} for one in ("ps", "worker")}
    placed = [running(f"train-{name}", "n1", annotations=notes["worker"], controller=volcano_owner()) for name in "abc"]
    lacks = waiting("train-z", annotations=notes["ps"], controller=volcano_owner())
    [room] = planned([small_node("n1"), small_node("n2")], [*full("n2"), *placed, lacks], job).rooms
    assert [slot.pod for slot in room.slots] == ["train-z"]


def test_no_more_is_reserved_for_a_job_with_a_live_reservation() -> None:
    held = reservation(
        tasks=[task(replicas=1, nodes=["n1"])],
        owners=[object_owner("Pod", "pod-4", uid="uid-default-pod-4", namespace="default")],
        capacity=Capacity.WHEN_FREE,
        fence=Fence.NODE,
        labels={STARVING_JOB_LABEL: "uid-default-pod-4"},
    )
    made = planned([small_node(), small_node("n2")], [*full("n1"), *full("n2"), waiting("pod-4")], held)
    assert (made.rooms, made.refused) == ((), ())


def test_a_job_that_was_given_up_lets_others_go_first_until_its_reservation_is_deleted() -> None:
    over = reservation(
        phase=ReservationPhase.FAILED, owners=[label_owner(a="b")], labels={STARVING_JOB_LABEL: "uid-default-pod-4"}
    )
    made = planned([small_node()], [*full("n1"), waiting("pod-4")], over)
    assert refusals(made) == {"pod-4": RefusalReason.GAVE_UP}


def test_a_tenant_keeps_no_job_of_another_namespace_from_its_nodes() -> None:
    forged = reservation(
        namespace="evil", phase=ReservationPhase.FAILED, labels={STARVING_JOB_LABEL: "uid-default-pod-4"}
    )
    made = planned([small_node()], [*full("n1"), waiting("pod-4")], forged)
    assert [room.name for room in made.rooms] == ["default/pod-4"]


# --- order -----------------------------------------------------------------------------------------------------------


def test_jobs_are_served_by_priority_and_then_by_age() -> None:
    pods = [waiting("young", created=LATER), waiting("old"), waiting("important", created=LATER, priority=10)]
    names = [job.reference.name for job in find_pending_jobs(Snapshot(pods=tuple(pods)))]
    assert names == ["important", "old", "young"]


def test_a_job_waits_while_one_of_higher_priority_can_be_placed_now() -> None:
    pods = [*full("n1", 2), waiting("large"), waiting("higher", cpu="1", created=JUST_NOW, priority=5)]
    made = planned([small_node()], pods)
    assert refusals(made) == {"large": RefusalReason.HIGHER_PRIORITY_FIRST}
    lower = [*full("n1", 2), waiting("large"), waiting("lower", cpu="1", created=JUST_NOW, priority=-5)]
    assert [room.name for room in planned([small_node()], lower).rooms] == ["default/large"]


def test_a_job_that_fits_now_is_its_schedulers() -> None:
    assert refusals(planned([small_node()], [waiting("pod-4")])) == {"pod-4": RefusalReason.FITS_NOW}


def test_jobs_behind_one_that_waits_for_nodes_take_none_of_them() -> None:
    nodes = [small_node(f"n{number}") for number in range(4)]
    blocked = [one for number in range(4) for one in full(f"n{number}")]
    fence = reservation(tasks=[task(nodes=["n0"])], capacity=Capacity.WHEN_FREE, fence=Fence.NODE)
    group, *members = gang(2)
    young = waiting("young", created=LATER)
    made = planned(nodes, [*blocked, *members, young], group, fence, reservedNodePercent=50)
    assert refusals(made) == {
        "train-0": RefusalReason.RESERVED_NODE_PERCENT,
        "young": RefusalReason.BEHIND_ANOTHER_JOB,
    }


def test_a_job_that_never_gets_so_many_nodes_holds_up_no_other() -> None:
    nodes = [small_node(f"n{number}") for number in range(4)]
    blocked = [one for number in range(4) for one in full(f"n{number}")]
    group, *members = gang(3)
    young = waiting("young", created=LATER)
    made = planned(nodes, [*blocked, *members, young], group, reservedNodePercent=50)
    assert refusals(made) == {"train-0": RefusalReason.RESERVED_NODE_PERCENT}
    assert [room.name for room in made.rooms] == ["default/young"]


def test_the_jobs_of_one_namespace_get_half_of_the_percentage_whatever_their_priority() -> None:
    """Any tenant may give its pods the class `system-cluster-critical`."""
    nodes = [small_node(f"n{number}") for number in range(10)]
    blocked = [blocked_pod for number in range(10) for blocked_pod in full(f"n{number}")]
    greedy = [
        waiting(
            f"greedy-{number}",
            namespace="greedy",
            priority=2_000_000_000,
            priority_class_name="system-cluster-critical",
        )
        for number in range(9)
    ]
    modest = waiting("modest", namespace="modest", created=LATER)
    snapshot = Snapshot(nodes=tuple(nodes), pods=(*blocked, *greedy, modest))
    made = plan(snapshot, settings(reservedNodePercent=40))
    assert sorted(room.namespace for room in made.rooms) == ["greedy", "greedy", "modest"]


def test_the_jobs_of_one_namespace_leave_nodes_to_others_where_the_policy_says_so() -> None:
    nodes = [small_node(f"n{number}") for number in range(10)]
    blocked = [one for number in range(10) for one in full(f"n{number}")]
    greedy = [waiting(f"greedy-{number:02d}", namespace="greedy", priority=1000) for number in range(30)]
    modest = waiting("modest", namespace="modest", created=LATER)
    alone = planned(nodes, [*blocked, *greedy, modest], reservedNodePercent=40, namespaceNodePercent=40)
    assert {room.namespace for room in alone.rooms} == {"greedy"}
    shared = planned(nodes, [*blocked, *greedy, modest], reservedNodePercent=40, namespaceNodePercent=20)
    assert sorted(room.namespace for room in shared.rooms) == ["greedy", "greedy", "modest"]
    assert {one.reason for one in shared.refused} == {RefusalReason.RESERVED_NODE_PERCENT}
    fences = [
        reservation(
            f"r{n}", namespace="greedy", tasks=[task(nodes=[f"n{n}"])], capacity=Capacity.WHEN_FREE, fence=Fence.NODE
        )
        for n in range(2)
    ]
    later = planned(nodes, [*blocked, *greedy, modest], *fences, reservedNodePercent=40, namespaceNodePercent=20)
    assert [room.name for room in later.rooms] == ["modest/modest"]


# --- nodes -----------------------------------------------------------------------------------------------------------


def test_the_node_with_the_most_idle_of_the_request_is_kept() -> None:
    nodes = [small_node("n1"), small_node("n2"), small_node("n3")]
    pods = [*full("n1", 3), *full("n2", 1), *full("n3", 2), waiting("pod-4")]
    [room] = planned(nodes, pods).rooms
    assert nodes_of(room) == ["n2"]


def test_other_resources_weigh_twice_as_much_as_cpu_and_memory_together() -> None:
    gpu = {"nvidia.com/gpu": "2"}
    nodes = [small_node("n1", allocatable=gpu), small_node("n2", allocatable=gpu)]
    on_n1 = [running("a", "n1", cpu="3")]  # nothing idle of cpu, all of the devices
    on_n2 = [running("b", "n2", cpu="1", requests=gpu)]  # most of cpu, none of the devices
    [room] = planned(nodes, [*on_n1, *on_n2, waiting("pod-4", requests=gpu)]).rooms
    assert nodes_of(room) == ["n1"]


def test_a_node_where_pods_never_end_comes_after_all_others() -> None:
    nodes = [small_node("n1"), small_node("n2")]
    pods = [*full("n1", 1, ends=False), *full("n2", 3), waiting("pod-4")]
    [room] = planned(nodes, pods).rooms
    assert nodes_of(room) == ["n2"]
    [room] = planned(nodes[:1], [*full("n1", 1, ends=False), waiting("pod-4")]).rooms
    assert nodes_of(room) == ["n1"]


def test_no_node_is_kept_where_half_a_gang_waits_for_the_other_half() -> None:
    nodes = [small_node("n1"), small_node("n2")]
    group, first, second = gang(2)
    half = running("train-9", "n1", cpu="3", annotations={GROUP: "train"})
    [room] = planned(nodes, [half, *full("n2"), waiting("pod-4")]).rooms
    assert nodes_of(room) == ["n1"], "a job that lacks no pod ends"
    made = planned(nodes[:1], [half, first, waiting("pod-4", created=LATER)], group)
    assert (made.rooms, refusals(made)) == (
        (),
        {"train-0": RefusalReason.NODES_PROMISED, "pod-4": RefusalReason.NODES_PROMISED},
    )
    rooms = planned(nodes, [half, *full("n2"), first, second, waiting("pod-4", created=LATER)], group).rooms
    assert [(room.name, nodes_of(room)) for room in rooms] == [("default/train", ["n2"])]


def test_of_equal_nodes_the_one_is_kept_whose_pods_end_sooner() -> None:
    nodes = [small_node("n1"), small_node("n2")]
    soon, late = {"volcano.sh/maximum-runtime": "5m"}, {"volcano.sh/maximum-runtime": "5h"}
    pods = [
        running("a", "n1", annotations=late, cpu="3", started=LONG_AGO),
        running("b", "n2", annotations=soon, cpu="3", started=LONG_AGO),
        waiting("pod-4"),
    ]
    [room] = planned(nodes, pods).rooms
    assert nodes_of(room) == ["n2"]


def test_pods_of_daemon_sets_never_leave_room() -> None:
    made = planned(
        [small_node()],
        [running("agent", "n1", controller=owner("DaemonSet", "agent")), *full("n1", 2), waiting("pod-4")],
    )
    assert (made.rooms, refusals(made)) == ((), {"pod-4": RefusalReason.LARGER_THAN_ANY_NODE})


def test_a_pod_larger_than_any_node_is_refused_with_the_amounts() -> None:
    made = planned([small_node()], [*full("n1"), waiting("huge", cpu="64")])
    [refused] = made.refused
    assert refused.reason is RefusalReason.LARGER_THAN_ANY_NODE
    assert "cpu 64, and no node has more than 3" in refused.message


@pytest.mark.parametrize(
    ("number", "want"),
    [
        (1, "Nothing is reserved for 1 job that starves (LargerThanAnyNode 1)."),
        (2, "Nothing is reserved for 2 jobs that starve (LargerThanAnyNode 2)."),
    ],
)
def test_a_plan_says_for_how_many_jobs_nothing_is_reserved(number: int, want: str) -> None:
    huge = (waiting(f"huge-{index}", cpu="64") for index in range(number))
    assert StarvingJobs.goal.sentence(planned([small_node()], [*full("n1"), *huge])) == want


def test_a_pod_that_starves_by_its_own_rules_is_refused_with_the_rule() -> None:
    tainted = small_node("n1", taints=[Taint(key="gpu", value="only", effect="NoSchedule")])
    made = planned([tainted], [waiting("pod-4")])
    [refused] = made.refused
    assert (refused.reason, refused.constraint) == (RefusalReason.STARVES_BY_RULES, RefusalReason.UNTOLERATED_TAINT)
    others = apart(term(HOSTNAME, select=selector(app="db")))
    made = planned([small_node()], [running("db", "n1", labels={"app": "db"}), waiting("pod-4", affinity=others)])
    [refused] = made.refused
    assert (refused.reason, refused.constraint) == (RefusalReason.STARVES_BY_RULES, RefusalReason.POD_ANTI_AFFINITY)


def test_what_is_promised_to_others_is_promised_to_no_further_job() -> None:
    fence = reservation(tasks=[task(nodes=["n1"], cpu="2")], capacity=Capacity.WHEN_FREE, fence=Fence.NODE)
    nodes = [small_node("n1", "4")]
    small = waiting("small", cpu="2")
    assert nodes_of(planned(nodes, [*full("n1", 4), small], fence).rooms[0]) == ["n1"]
    assert refusals(planned(nodes, [*full("n1", 4), waiting("large")], fence)) == {
        "large": RefusalReason.NODES_PROMISED
    }


def test_pods_of_a_gang_share_the_nodes_that_hold_most_where_few_may_be_fenced() -> None:
    sizes = (3, 3, 6, 6)
    nodes = [small_node(f"n{number}", str(size)) for number, size in enumerate(sizes)]
    blocked = [one for number, size in enumerate(sizes) for one in full(f"n{number}", size)]
    group, *members = gang(4)
    [room] = planned(nodes, [*blocked, *members], group, reservedNodePercent=50).rooms
    assert sorted(nodes_of(room)) == ["n2", "n2", "n3", "n3"]


def test_a_fence_counts_until_every_slot_on_its_node_is_held() -> None:
    slots = [
        Slot(task="web", index=0, state=SlotState.HELD, node="n1"),
        Slot(task="web", index=1, state=SlotState.PENDING),
    ]
    waits = reservation(
        tasks=[task(replicas=2, nodes=["n1"])],
        capacity=Capacity.WHEN_FREE,
        fence=Fence.NODE,
        status=ReservationStatus(slots=tuple(slots)),
    )
    assert fenced_nodes([waits]) == {"n1"}
    held = reservation(
        tasks=[task(replicas=1, nodes=["n1"])],
        capacity=Capacity.WHEN_FREE,
        fence=Fence.NODE,
        status=ReservationStatus(slots=tuple(slots[:1])),
    )
    assert fenced_nodes([held]) == frozenset()
    assert fenced_nodes([reservation(tasks=[task(nodes=["n1"])])]) == frozenset()


@pytest.mark.parametrize("reason", [ReservationReason.FENCE_LIMIT, ReservationReason.UNSCHEDULABLE_YET])
def test_nodes_that_a_tenant_names_in_vain_count_for_no_policy(reason: ReservationReason) -> None:
    state = ReservationState(phase=ReservationPhase.PENDING, reason=reason.value)
    vain = reservation(
        tasks=[task(replicas=2, nodes=["n1", "n2"])],
        capacity=Capacity.WHEN_FREE,
        fence=Fence.NODE,
        status=ReservationStatus(state=state),
    )
    assert fenced_nodes([vain]) == frozenset()
    of_a_job = replace(vain, metadata=replace(vain.metadata, labels={STARVING_JOB_LABEL: "uid"}))
    assert fenced_nodes([of_a_job]) == {"n1", "n2"}


@holds_for(
    quick=20,
    percent=st.integers(1, 100),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    loads=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    fenced=st.sets(st.integers(0, 11), max_size=4),
)
def test_never_more_than_the_percentage_of_nodes_is_kept_and_every_gang_is_whole(
    percent: int, sizes: list[int], loads: list[int], fenced: set[int]
) -> None:
    nodes = [small_node(f"n{number}", "4") for number in range(len(loads))]
    pods = [one for number, load in enumerate(loads) for one in full(f"n{number}", load)]
    others = [
        reservation(
            f"other-{number}",
            tasks=[task(nodes=[f"n{number}"], cpu="1")],
            capacity=Capacity.WHEN_FREE,
            fence=Fence.NODE,
        )
        for number in fenced
        if number < len(loads)
    ]
    groups = [since_long_ago(volcano_pod_group(f"gang-{number}", min_member=size)) for number, size in enumerate(sizes)]
    pods += [
        waiting(f"gang-{number}-{index}", annotations={GROUP: f"gang-{number}"})
        for number, size in enumerate(sizes)
        for index in range(size)
    ]
    made = planned(nodes, pods, *groups, *others, reservedNodePercent=percent)
    new = {slot.node for room in made.rooms for slot in room.slots}
    taken = {node for one in others for task in one.spec.tasks for node in task.node_names}
    assert not new or len(new | taken) <= max(1, len(loads) * percent // 100) or new <= taken
    for room in made.rooms:
        size = sizes[int(room.name.rpartition("-")[2])]
        assert len(room.slots) == size
        assert len({slot.pod_uid for slot in room.slots}) == size
    held = dict.fromkeys(taken | new, 0)
    for name in taken:
        held[name] += 1
    for room in made.rooms:
        for slot in room.slots:
            held[slot.node] += 3
    assert all(amount <= 4 for amount in held.values())


# --- moves first -----------------------------------------------------------------------------------------------------


def test_what_moves_can_give_is_moved_for_and_only_the_rest_waits() -> None:
    nodes = [small_node("n1"), small_node("n2"), small_node("n3", "6", labels={"size": "six"})]
    movable = [running("web-1", "n1", controller=owner(), labels={"app": "web"})]
    stuck = [running(f"bare-{n}", "n2") for n in range(2)]
    rest = [running(f"six-{n}", "n3") for n in range(6)]
    pods = [*movable, *stuck, *rest, waiting("pod-4"), waiting("pod-6", cpu="6")]
    made = planned(nodes, pods, workload(), moves="Fewest")
    assert [(move.pod, move.source, move.target) for move in made.moves] == [("web-1", "n1", "n2")]
    assert [(room.name, nodes_of(room), room.capacity) for room in made.rooms] == [
        ("default/pod-4", ["n1"], Capacity.FREE),
        ("default/pod-6", ["n3"], Capacity.WHEN_FREE),
    ]
    waits = planned(nodes, pods, workload(), moves="Never")
    assert [room.capacity for room in waits.rooms] == [Capacity.WHEN_FREE] * 2


def test_a_gang_for_which_moves_make_room_has_one_room() -> None:
    nodes = [small_node("n1"), small_node("n2"), small_node("n3")]
    spread = [running(f"web-{n}", f"n{n}", controller=owner(), labels={"app": "web"}) for n in (1, 2)]
    group, *members = gang(2)
    made = planned(nodes, [*spread, *members], group, workload(replicas=2), moves="Fewest")
    [room] = made.rooms
    assert (room.capacity, room.gang, len(room.slots)) == (Capacity.FREE, "train", 2)
    assert len(made.moves) == 1


def test_no_job_starves_before_the_threshold() -> None:
    young = waiting("pod-4", created=JUST_NOW)
    assert (
        planned(
            [small_node()], [*full("n1"), young], starvingJobTimeThreshold=int(timedelta(hours=1).total_seconds())
        ).rooms
        == ()
    )


@pytest.mark.parametrize("raw", ["0", "101", "many"])
def test_a_percentage_out_of_its_range_is_refused_with_one_range(raw: str) -> None:
    with pytest.raises(InputError, match="a percentage above 0, at most 100"):
        StarvingJobs.parse({"reservedNodePercent": raw})


@pytest.mark.parametrize("raw", ["0s", "soon", "9000000h"])
def test_a_duration_out_of_its_range_is_refused_with_one_range(raw: str) -> None:
    with pytest.raises(InputError, match="at least 1s and at most 36500 days"):
        StarvingJobs.parse({"giveUpAfter": raw})


# --- jobs without pods -----------------------------------------------------------------------------------------------


def kept_out(name: str = "train", *, created: str = LONG_AGO, phase: str = "Pending") -> Any:
    """A Volcano PodGroup of 2 x 4 cpu."""
    group = volcano_pod_group(name, min_member=2, phase=phase)
    spec = replace(group.spec, min_resources={"cpu": "8"})
    return replace(group, spec=spec, metadata=replace(group.metadata, creation_timestamp=created))


def test_a_job_whose_group_volcano_has_not_let_in_is_said_to_starve_without_pods() -> None:
    made = planned([small_node()], full("n1"), kept_out())
    assert made.rooms == ()
    assert refusals(made) == {"train": RefusalReason.NOT_ENQUEUED}
    assert made.refused[0].message == (
        "PodGroup default/train starves, and nothing is reserved for it: it has no pods, since Volcano's action "
        "enqueue has not let it in, where it would ask for 8 of cpu"
    )
    assert made.job_outcomes == {"Waits": 0, "RoomMade": 0, "NotEnqueued": 1}


@pytest.mark.parametrize(
    "group", [kept_out(created=JUST_NOW), kept_out(phase="Inqueue"), pod_group("train", min_count=2)]
)
def test_a_group_that_is_young_or_was_let_in_is_not(group: Any) -> None:
    assert refusals(planned([small_node()], full("n1"), group)) == {}


def test_a_group_with_pods_is_a_job_like_others() -> None:
    group, *members = gang(1)
    made = planned([small_node()], [*full("n1"), *members], replace(group, status=kept_out().status))
    assert [room.name for room in made.rooms] == ["default/train"]
    assert refusals(made) == {}
