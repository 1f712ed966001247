"""The pods of a group that says so may take slots of windows: at their creation, and when they have waited before."""

import base64
import threading
from typing import Any, Final

import msgspec
import pytest

from api_server_in_memory import ApiServerInMemory, error
from berth_core import RESERVATION_LABEL, RESERVEABLE_ANNOTATION, Pod, Reservation, ReservationOwner, SlotState
from berth_core.pod_groups import as_reserveable, takes_word_of_group
from berth_kube.errors import ForbiddenError, KubeError, NotFoundError, ServerError
from berth_kube.resources import PODS, VOLCANO_POD_GROUPS
from berth_operator.admission.reviews import Admission, Answer, read_review
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.pending_owners import PendingOwners, ReserveableGroups
from berth_operator.reservation.store.cache import Cache
from berth_operator.settings import OperatorSettings
from builders import FakeClock, as_api, pod
from handover_builders import PLACE_UID, UNSCHEDULABLE, place, slot
from json_patches import apply
from webhook_calls import review

SAYS: Final = {RESERVEABLE_ANNOTATION: "true"}
OF_GROUP: Final = {"scheduling.k8s.io/group-name": "books"}
OWNERS: Final = (ReservationOwner(annotations=dict(SAYS)),)
WINDOW: Final = place(slot(SlotState.HELD), owners=OWNERS)


def group(name: str = "books", *, namespace: str = "default", **annotations: str) -> dict[str, Any]:
    """A PodGroup without a minimum, or anything else that a pod needs."""
    meta = {"name": name, "namespace": namespace, "annotations": annotations or SAYS}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": meta}


class World:
    """A window's Reservation with a held slot, and an API server with groups and pods."""

    def __init__(self, *groups: dict[str, Any], window: Reservation = WINDOW) -> None:
        self.api = ApiServerInMemory()
        for one in groups:
            self.api.put(VOLCANO_POD_GROUPS, one)
        self.cache = Cache(lambda _key: None)
        self.cache.put_reservation(window)
        self.admission = Admission(self.cache, groups=ReserveableGroups(self.api.as_client()))
        context = Context(self.api.as_client(), self.cache, OperatorSettings(), FakeClock())
        self.pending = PendingOwners(context, lambda _key, _seconds: None)

    def review(self, one: Pod) -> Answer:
        """Answer as the webhook's server does."""
        asked = read_review(review(as_api(one)))
        answer = self.admission.answer(asked)
        if not answer.is_final:
            self.admission.refetch_unsure(answer)
            answer = self.admission.answer(asked)
        assert answer.is_final
        return answer

    def waiting(self, *pods: Pod) -> list[Pod]:
        """Return the pods that are to be given a slot after a search."""
        for one in pods:
            self.api.put(PODS, as_api(one))
        self.pending.request(PLACE_UID)
        self.pending.search()
        seen = self.cache.observe(PLACE_UID)
        assert seen is not None
        return list(seen.waiting)


def member(name: str = "member", **notes: str) -> Pod:
    return pod(name, annotations={**OF_GROUP, **notes}, controller=None)


def refused(name: str = "member", **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on what the case says
    made = pod(name, uid=f"uid-{name}", annotations=dict(OF_GROUP), controller=None, phase="Pending", **rest)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=(UNSCHEDULABLE,)))


def test_a_pod_whose_group_says_so_is_gated_at_its_creation_and_says_so_itself_from_then_on() -> None:
    world, one = World(group()), member()
    answer = world.review(one)
    assert answer.reservation == PLACE_UID
    operations = msgspec.json.decode(base64.b64decode(answer.body["response"]["patch"]))
    stored = msgspec.convert(apply(operations, as_api(one)), Pod)
    assert stored.metadata.annotations == {**OF_GROUP, **SAYS}
    assert stored.metadata.labels == {**one.metadata.labels, RESERVATION_LABEL: PLACE_UID}


GATED_AT_CREATION: Final = {
    "of a group that does not say so": (member(), [group(other="true")], False),
    "of a group that says something else": (member(), [group(**{RESERVEABLE_ANNOTATION: "yes"})], False),
    "of a group that does not exist": (member(), [], False),
    "of a group of another namespace": (member(), [group(namespace="rich")], False),
    "of another group than the one that says so": (member(), [group("other")], False),
    "that refuses what its group says": (member(**{RESERVEABLE_ANNOTATION: "false"}), [group()], False),
    "that says so itself, of a group that does not": (
        member(**SAYS),
        [group(**{RESERVEABLE_ANNOTATION: "false"})],
        True,
    ),
    "of no group": (pod(controller=None), [group()], False),
    "of a group of a very long name": (
        member(**{"scheduling.k8s.io/group-name": "b" * 253}),
        [group("b" * 253)],
        True,
    ),
    "by Volcano's other annotation of groups": (
        pod(annotations={"scheduling.volcano.sh/group-name": "books"}, controller=None),
        [group()],
        True,
    ),
}


@pytest.mark.parametrize(("one", "groups", "want"), GATED_AT_CREATION.values(), ids=GATED_AT_CREATION.keys())
def test_whether_a_pod_is_gated(one: Pod, groups: list[dict[str, Any]], want: bool) -> None:  # noqa: FBT001 - of a table
    assert bool(World(*groups).review(one).reservation) is want


def test_a_group_is_read_once_for_many_pods_and_not_where_its_word_changes_nothing() -> None:
    world = World(group(), window=place(*(slot(SlotState.HELD, n) for n in range(3)), replicas=3, owners=OWNERS))
    assert all(world.review(member(f"member-{number}")).reservation for number in range(3))
    assert world.api.calls == ["get volcanopodgroups books"]
    other = World(group(), window=place(slot(SlotState.HELD)))
    assert not other.review(member()).reservation
    assert other.api.calls == []


def test_a_group_that_cannot_be_read_says_nothing() -> None:
    world = World(group())
    for kind in (ServerError, NotFoundError, ForbiddenError):
        world.api.faults["get volcanopodgroups books"] = error(kind)
        assert not world.review(member()).reservation


def test_a_pod_that_waited_before_the_slot_was_held_is_annotated_and_given_it() -> None:
    world = World(group())
    (found,) = world.waiting(refused())
    assert found.metadata.annotations == {**OF_GROUP, **SAYS}
    assert world.api.get(PODS, "member", namespace="default", type=Pod) == found
    assert world.waiting()[0].metadata.uid == found.metadata.uid


def test_no_pod_is_annotated_that_gets_no_slot() -> None:
    world = World(group())
    older, younger = refused("a", created="2026-11-21T11:00:00Z"), refused("b", created="2026-11-21T11:00:01Z")
    assert [one.metadata.name for one in world.waiting(older, younger)] == ["a"]
    assert world.api.get(PODS, "b", namespace="default", type=Pod).metadata.annotations == OF_GROUP


def test_groups_are_not_listed_for_reservations_of_other_owners() -> None:
    world = World(group(), window=place(slot(SlotState.HELD)))
    assert world.waiting(refused()) == []
    assert [call for call in world.api.calls if "volcanopodgroups" in call] == []


@pytest.mark.parametrize("kind", [ForbiddenError, ServerError])
def test_a_pod_that_cannot_be_annotated_gets_no_slot_and_keeps_no_other_from_its_own(kind: type[KubeError]) -> None:
    slots = [slot(SlotState.HELD, number) for number in range(2)]
    world = World(group(), window=place(*slots, replicas=2, owners=OWNERS))
    world.api.faults["merge pods a"] = error(kind)
    assert [one.metadata.name for one in world.waiting(refused("a"), refused("b"))] == ["b"]
    world.api.faults.clear()
    assert len(world.waiting()) == 2


def test_groups_may_be_asked_for_from_many_threads() -> None:
    groups = ReserveableGroups(World(group()).api.as_client())
    pods = [member(f"m-{number}") for number in range(20)]
    threads = [threading.Thread(target=groups.read, args=(one,)) for one in pods]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {groups.say(one) for one in pods} == {True}


def test_the_pods_own_word_comes_first() -> None:
    assert takes_word_of_group(member())
    assert not takes_word_of_group(as_reserveable(member()))
    assert not takes_word_of_group(member(**{RESERVEABLE_ANNOTATION: "false"}))
