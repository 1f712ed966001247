"""What is left of a queue's guarantee is worth as much as its pods could use of it on the nodes there are."""

# ruff: noqa: ANN401 - a builder passes on what the case says

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from berth_core import Node, Pod, Taint
from berth_core.gated_queues import LocalQueue
from berth_core.labels import INDEX_ANNOTATION, PLACEHOLDER_LABEL, RESERVATION_LABEL, TASK_ANNOTATION
from berth_core.queues import QueueObject, QueueSource
from berth_core.reservations import Reservation, ReservationStatus, Slot, SlotState
from berth_core.resources import ResourceAmounts
from berth_core.snapshot import Snapshot
from berth_descheduler.capabilities.queues.guarantees import QueueCapacity, measure_queues
from builders import (
    bare_pod,
    gated_queue,
    meta,
    namespace,
    node,
    owner,
    pod,
    queue,
    reservation,
    task,
    volcano_job,
    volcano_owner,
    volcano_pod_group,
)

IN_ML = {"scheduling.volcano.sh/queue-name": "ml"}
HALF = "8"


def of_ml(name: str, cpu: str = HALF, on: str = "", **rest: Any) -> Pod:
    return bare_pod(name, node=on, cpu=cpu, annotations=IN_ML, **rest)


def other(name: str, cpu: str, on: str) -> Pod:
    return pod(name, node=on, cpu=cpu)


def measured(*pods: Pod, nodes: int = 4, queues: tuple[QueueObject, ...] = (), **rest: Any) -> QueueCapacity:
    """Return the first queue on nodes of 16 cores; without others it is `ml`, with 32 cores guaranteed."""
    found = measure_queues(
        Snapshot(
            nodes=tuple(node(f"n{number}") for number in range(nodes)),
            pods=pods,
            queue_objects=queues or (queue(guarantee={"cpu": "32"}),),
            **rest,
        )
    )
    return found[0]


def cpu(amount: int) -> ResourceAmounts:
    return ResourceAmounts({"cpu": amount * 1000})


def test_a_guarantee_in_useless_pieces_is_not_placeable() -> None:
    pieces = [other(f"o{number}", "10", f"n{number}") for number in range(4)]

    found = measured(of_ml("waits"), *pieces)

    assert found.left == cpu(32)  # arithmetic would hold it: 24 cores are free
    assert (found.wanted, found.placed, found.share("cpu")) == (4, 0, 0)


def test_whole_pods_of_its_shape_count_on_the_nodes_that_have_room_for_one() -> None:
    found = measured(of_ml("waits"), other("o0", "10", "n0"), other("o1", "1", "n1"), nodes=3)

    assert (found.wanted, found.placed) == (4, 3)
    assert (found.usable, found.placeable) == (cpu(32), cpu(24))
    assert found.share("cpu") == Fraction(3, 4)
    assert found.shapes[0].nodes == 2


def test_what_its_pods_have_is_not_left_and_tells_the_shape_too() -> None:
    found = measured(of_ml("runs", on="n0"), nodes=2)

    assert (found.allocated["cpu"], found.left) == (8000, cpu(24))
    assert (found.wanted, found.placed) == (3, 3)
    assert found.shapes[0].shape.asked_by == "1 placed"


def test_waiting_pods_come_first_then_the_most_frequent_shape_fills_the_rest() -> None:
    found = measured(of_ml("large", cpu="12"), of_ml("a", cpu="4", on="n0"), of_ml("b", cpu="4", on="n1"))

    assert [(one.shape.name, one.wanted) for one in found.shapes] == [
        ("cpu=12,memory=64Mi", 2),
        ("cpu=4,memory=64Mi", 0),
    ]


def test_larger_pods_are_placed_before_smaller_ones() -> None:
    found = measured(of_ml("small", cpu="8"), of_ml("small-2", cpu="8"), of_ml("large", cpu="16"), nodes=2, queues=())

    assert {one.shape.name: one.placeable for one in found.shapes} == {"cpu=16,memory=64Mi": 1, "cpu=8,memory=64Mi": 2}


def test_without_pods_nothing_is_guessed() -> None:
    found = measured(other("o", "1", "n0"))

    assert found.shapes == ()
    assert found.left == cpu(32)
    assert found.share("cpu") is None


def test_a_guarantee_that_is_used_up_has_nothing_left_to_place() -> None:
    found = measured(*(of_ml(f"runs-{number}", cpu="16", on=f"n{number}") for number in range(3)))

    assert (found.left, found.wanted, found.share("cpu")) == (ResourceAmounts(), 0, 1)


def test_a_shape_that_needs_more_of_a_guaranteed_resource_than_is_left_cannot_use_the_rest() -> None:
    both = queue(guarantee={"cpu": "32", "memory": "128Mi"})

    found = measured(of_ml("a", on="n0"), of_ml("b", on="n1"), queues=(both,))

    assert found.left == cpu(16)
    assert (found.wanted, found.share("cpu")) == (0, None)
    assert found.share("memory") == 1


def test_nodes_that_its_pods_do_not_tolerate_are_of_no_use() -> None:
    closed = node("closed", taints=(Taint(key="gpu", value="yes", effect="NoSchedule"),))
    snapshot = Snapshot(nodes=(closed,), pods=(of_ml("waits"),), queue_objects=(queue(guarantee={"cpu": "8"}),))

    (found,) = measure_queues(snapshot)

    assert (found.wanted, found.placed) == (1, 0)


OWNERS = {
    "its Volcano PodGroup": bare_pod("p", node="n0", cpu="8", annotations={"scheduling.k8s.io/group-name": "group"}),
    "the annotation": of_ml("p", on="n0"),
    "the annotation on a pod of a Volcano Job": bare_pod(
        "p", node="n0", cpu="8", annotations={"volcano.sh/queue-name": "ml"}
    ),
    "its Volcano Job": pod("p", node="n0", cpu="8", controller=volcano_owner()),
}


@pytest.mark.parametrize("one", OWNERS.values(), ids=OWNERS.keys())
def test_a_pod_is_in_the_queue_that_is_named_by(one: Pod) -> None:
    group, job = volcano_pod_group(), volcano_job()
    group = msgspec.structs.replace(group, spec=msgspec.structs.replace(group.spec, queue="ml"))
    job = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, queue="ml"))

    assert measured(one, pod_groups=(group,), volcano_jobs=(job,)).allocated["cpu"] == 8000


def test_the_group_says_more_than_the_pods_own_annotation() -> None:
    liar = bare_pod("p", node="n0", cpu="8", annotations={"scheduling.k8s.io/group-name": "group", **IN_ML})

    assert measured(liar, pod_groups=(volcano_pod_group(),)).allocated["cpu"] == 0


def test_pods_of_volcano_that_name_no_queue_are_in_the_default_one() -> None:
    by_default = queue("default", guarantee={"cpu": "32"})
    of_volcano = bare_pod("p", node="n0", cpu="8", scheduler_name="volcano")

    assert measured(of_volcano, queues=(by_default,)).allocated["cpu"] == 8000


def placeholder(on: str) -> Pod:
    labels = {PLACEHOLDER_LABEL: "true", RESERVATION_LABEL: "uid-place"}
    notes = {TASK_ANNOTATION: "worker", INDEX_ANNOTATION: "0"}
    return bare_pod("berth-1", namespace="berth-system", node=on, cpu="8", labels=labels, annotations=notes)


def test_a_placeholder_counts_in_the_queue_that_its_reservation_names() -> None:
    names_ml = reservation("place", tasks=(task("worker", cpu="8"),), uid="uid-place", queue="ml")

    found = measured(placeholder("n0"), reservations=(names_ml,))

    assert found.allocated["cpu"] == 8000
    assert [one.wanted for one in found.shapes] == [3]


def test_the_owner_of_a_held_place_is_not_counted_beside_its_placeholder() -> None:
    names_ml = reservation("place", tasks=(task("worker", cpu="8"),), uid="uid-place", queue="ml")
    owner = of_ml("owner", labels={RESERVATION_LABEL: "uid-place"}, gates=("berth",))

    found = measured(placeholder("n0"), owner, reservations=(names_ml,))

    assert not found.shapes[0].waiting


def test_pods_of_a_part_count_in_the_whole_queue() -> None:
    whole, part = queue("whole", guarantee={"cpu": "32"}), queue("ml", parent="whole")

    assert measured(of_ml("p", on="n0"), queues=(whole, part)).allocated["cpu"] == 8000


def test_queues_above_one_another_in_a_circle_end() -> None:
    one, two = queue("ml", guarantee={"cpu": "32"}, parent="b"), queue("b", parent="ml")

    assert measured(of_ml("p", on="n0"), queues=(one, two)).allocated["cpu"] == 8000


def test_a_queue_that_cannot_be_read_says_why() -> None:
    found = measured(of_ml("p", on="n0"), queues=(queue(guarantee={"cpu": "much"}),))

    assert "spec.guarantee.resource.cpu" in found.queue.unreadable
    assert not found.left


def test_without_guarantees_the_cluster_is_not_even_looked_at() -> None:
    odd = Snapshot(nodes=(node("a"), node("a")), queue_objects=(queue(),))

    assert measure_queues(odd) == ()


# --- queues of Berth -------------------------------------------------------------------------------------------------

TEAM = {"team": "ml"}


def measured_own(*pods: Pod, nodes: tuple[Node, ...] = (), accepted: str = "", **rest: Any) -> QueueCapacity:
    """Return a queue of Berth with half of two nodes of 16 cores."""
    (found,) = measure_queues(
        Snapshot(
            nodes=nodes or (node("n0"), node("n1")),
            pods=pods,
            **{
                "namespaces": (namespace(labels=TEAM), namespace("others")),
                "gated_queues": (gated_queue(guarantee={"cpu": "50%"}, accepted=accepted),),
                **rest,
            },
        )
    )
    return found


def test_pods_are_in_the_queue_of_their_namespace_whatever_queue_of_volcano_they_name() -> None:
    found = measured_own(
        bare_pod("a", node="n0", cpu="4", annotations={"scheduling.volcano.sh/queue-name": "other"}),
        bare_pod("b", node="n1", cpu="8", namespace="others"),
    )

    assert (found.queue.source, found.queue.guarantee, found.left) == (QueueSource.BERTH, cpu(16), cpu(12))
    assert (found.wanted, found.placed) == (3, 3)


def test_a_pod_may_count_in_a_queue_of_each_kind() -> None:
    snapshot = Snapshot(
        nodes=(node("n0"),),
        pods=(of_ml("a", on="n0"),),
        namespaces=(namespace(labels=TEAM),),
        queue_objects=(queue(guarantee={"cpu": "8"}),),
        gated_queues=(gated_queue(guarantee={"cpu": "8"}),),
    )

    assert [(one.queue.source, one.allocated["cpu"]) for one in measure_queues(snapshot)] == [
        (QueueSource.BERTH, 8000),
        (QueueSource.VOLCANO, 8000),
    ]


def test_percentages_are_of_the_nodes_that_count_and_pods_elsewhere_use_nothing_of_them() -> None:
    closed = node("cordoned", unschedulable=True)
    control_plane = node("control", labels={"node-role.kubernetes.io/control-plane": ""})

    found = measured_own(
        bare_pod("a", node="cordoned", cpu="8"),
        bare_pod("b", node="control", cpu="8"),
        nodes=(node("n0"), closed, control_plane),
    )

    assert (found.queue.guarantee, found.allocated) == (cpu(8), ResourceAmounts())


LEFT_OUT: dict[str, dict[str, Any]] = {
    "its namespace is Kueue's": {"local_queues": (LocalQueue(metadata=meta("batch", namespace="default")),)},
    "an older queue has its namespace": {
        "gated_queues": (
            gated_queue(guarantee={"cpu": "50%"}),
            gated_queue("all", namespaceSelector={}),
        )
    },
}


@pytest.mark.parametrize("rest", LEFT_OUT.values(), ids=LEFT_OUT)
def test_a_pod_is_in_no_queue_that_does_not_have_its_namespace(rest: dict[str, Any]) -> None:
    assert not measured_own(bare_pod("a", node="n0", cpu="4"), **rest).allocated


def test_a_placeholder_counts_in_the_queue_of_its_reservations_namespace() -> None:
    held = reservation(uid="uid-place", tasks=(task("worker", cpu="8"),))

    assert measured_own(placeholder("n0"), reservations=(held,)).allocated["cpu"] == 8000


def test_pods_of_daemons_are_in_no_queue() -> None:
    assert not measured_own(pod("a", node="n0", cpu="4", controller=owner("DaemonSet", "log"))).allocated


def test_a_guarantee_that_the_operator_refused_does_not_count() -> None:
    found = measured_own(bare_pod("a", cpu="4"), accepted="False")

    assert (found.queue.guarantee, found.queue.refused) == (ResourceAmounts(), "as it says")
    assert not measured_own(bare_pod("a", cpu="4"), accepted="True").queue.refused


def test_a_number_of_pods_may_be_guaranteed() -> None:
    of_pods = gated_queue(guarantee={"pods": 3})

    found = measured_own(bare_pod("a", node="n0", cpu="4"), gated_queues=(of_pods,))

    assert (found.allocated["pods"], found.left["pods"], found.placeable["pods"]) == (1, 2, 2)


def slot_of(queue_uid: str, state: SlotState = SlotState.HELD) -> Reservation:
    slot = reservation(
        uid="uid-place",
        tasks=(task("worker", cpu="8"),),
        status=ReservationStatus(slots=(Slot(task="worker", index=0, state=state),)),
    )
    owners = (owner("Queue", "ml", uid=queue_uid),)
    owners = tuple(msgspec.structs.replace(one, api_version="berth.volcano.sh/v1alpha1") for one in owners)
    return msgspec.structs.replace(slot, metadata=msgspec.structs.replace(slot.metadata, owner_references=owners))


def test_a_slot_that_the_queue_holds_is_neither_allocated_nor_left() -> None:
    found = measured_own(placeholder("n0"), reservations=(slot_of("uid-own-queue-ml"),))

    assert (found.allocated["cpu"], found.held["cpu"], found.left) == (0, 8000, cpu(8))
    assert [(one.shape.asked_by, one.wanted, one.placeable) for one in found.shapes] == [("1 held", 1, 1)]


def test_a_slot_that_waits_is_left_and_tells_the_shape_of_what_is_wanted() -> None:
    found = measured_own(placeholder(""), reservations=(slot_of("uid-own-queue-ml", SlotState.PENDING),))

    assert (found.allocated, found.held, found.left) == (ResourceAmounts(), ResourceAmounts(), cpu(16))
    assert [(one.shape.asked_by, one.waiting, one.wanted) for one in found.shapes] == [("1 waiting", (), 2)]


@pytest.mark.parametrize(
    "slot",
    [
        slot_of("uid-own-queue-ml", SlotState.HANDING_OVER),
        slot_of("uid-own-queue-ml", SlotState.TAKEN),
        slot_of("uid-of-another"),
        reservation(uid="uid-place", tasks=(task("worker", cpu="8"),)),
    ],
    ids=["a pod is about to take", "a pod has taken", "is another queue's", "is none"],
)
def test_what_a_placeholder_holds_counts_as_allocated_if_its_slot(slot: Reservation) -> None:
    found = measured_own(placeholder("n0"), reservations=(slot,))

    assert (found.allocated["cpu"], found.held, found.left) == (8000, ResourceAmounts(), cpu(8))


def test_pods_of_berths_own_namespace_are_in_no_queue_wherever_that_is() -> None:
    everything = gated_queue(guarantee={"cpu": "50%"}, namespaceSelector={})
    snapshot = Snapshot(
        nodes=(node("n0"),),
        pods=(bare_pod("a", node="n0", cpu="4"), bare_pod("berth", namespace="elsewhere", node="n0", cpu="1")),
        namespaces=(namespace(), namespace("elsewhere")),
        gated_queues=(everything,),
    )

    assert [measure_queues(one)[0].allocated["cpu"] for one in (snapshot, snapshot.within("elsewhere"))] == [5000, 4000]
