"""Guards, orphans, priority classes and the webhook's registration go when nothing needs them any more."""

from typing import Any

import msgspec
import pytest

from api_server_in_memory import error
from berth_core import Pod
from berth_core.labels import HANDOVER_GATE, HANDOVER_TAINT, MANAGED_BY_OPERATOR, MANAGED_LABEL
from berth_core.names import WEBHOOK_CONFIGURATION
from berth_core.reservations import (
    RESERVATION_API_VERSION,
    RESERVATION_KIND,
    Reservation,
    ReservationPhase,
    SlotState,
)
from berth_kube.errors import InvalidObjectError
from berth_kube.resources import MUTATING_WEBHOOKS, NAMESPACES, NODES, PODS, RESERVATIONS
from berth_operator.reservation.act.ending_namespaces import EndingNamespaces
from berth_operator.reservation.act.fences import FenceManager
from berth_operator.reservation.act.guards import NodeGuard
from berth_operator.reservation.act.orphans import OrphanCollector
from berth_operator.reservation.act.resync import Resync
from berth_operator.reservation.actions import CreatePlaceholder
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.runtime.workqueue import ENDING_KEY, STRAYS_KEY, KeyKind
from builders import NOON, as_api, pod, task
from handover_builders import DEADLINE, PLACE_UID, note, observe, owner_pod, place, placeholder, slot
from operator_harness import OperatorHarness, harness

__all__ = ["harness"]

# --- guards


def guarded(harness: OperatorHarness) -> dict[str, str]:
    body = harness.api.get(NODES, "node-a", type=GuardableNode)
    return {taint.key: taint.value for taint in body.spec.taints}


def fences(harness: OperatorHarness) -> FenceManager:
    return FenceManager(harness.context, harness.priorities)


def node_guard(harness: OperatorHarness, *taints: dict[str, str]) -> NodeGuard:
    body = {"metadata": {"name": "node-a", "uid": "uid-node-a"}, "spec": {"taints": list(taints)}}
    harness.api.put(NODES, body)
    harness.cache.put_node(harness.api.get(NODES, "node-a", type=GuardableNode))
    return NodeGuard(harness.context, fences(harness))


OURS = {"key": HANDOVER_TAINT, "value": "5", "effect": "NoSchedule"}
THEIRS = {"key": "example.com/mine", "value": "x", "effect": "NoSchedule"}


def test_a_node_is_guarded_until_the_last_deadline_and_keeps_the_taints_of_others(harness: OperatorHarness) -> None:
    keeper = node_guard(harness, THEIRS)
    harness.know(
        owner_pod("web-0", given=note(0)),
        owner_pod("web-1", given=note(1, deadline=DEADLINE + 9)),
        of=place(slot(SlotState.HELD, 0), slot(SlotState.HELD, 1), replicas=2),
    )
    keeper.reconcile("node-a", NOON)
    assert guarded(harness) == {"example.com/mine": "x", HANDOVER_TAINT: str(DEADLINE + 9)}
    harness.api.calls.clear()
    keeper.reconcile("node-a", NOON)
    assert harness.api.calls == []


OF_NOBODY: dict[str, tuple[Pod | None, SlotState]] = {
    "nobody needs it": (None, SlotState.HELD),
    "its slot was lost": (owner_pod(given=note()), SlotState.LOST),
    "its slot was taken": (owner_pod(given=note()), SlotState.TAKEN),
}


@pytest.mark.parametrize(("owner", "state"), OF_NOBODY.values(), ids=OF_NOBODY.keys())
def test_a_guard_is_taken_off_when(harness: OperatorHarness, owner: Pod | None, state: SlotState) -> None:
    keeper = node_guard(harness, THEIRS, OURS)
    harness.know(*([owner] if owner else []), of=place(slot(state)))
    harness.clock.advance(3)
    assert keeper.reconcile("node-a", NOON) is None
    assert guarded(harness) == {"example.com/mine": "x"}


VALUES = {
    "its deadline has passed": ("5", DEADLINE),
    "it is no number": ("soon", DEADLINE),
    "it is four hundred nines": ("9" * 400, DEADLINE),
    "it was put on by a clock that was an hour ahead": (str(DEADLINE + 3600), DEADLINE),
    "a hand-over that is over stood longer": (str(DEADLINE + 60), DEADLINE + 60),
}


@pytest.mark.parametrize(("value", "want"), VALUES.values(), ids=VALUES.keys())
def test_a_guard_that_is_needed_stands_until_the_deadline_of_its_hand_over_where(
    harness: OperatorHarness, value: str, want: int
) -> None:
    keeper = node_guard(harness, {**OURS, "value": value})
    harness.know(owner_pod(given=note()), of=place(slot(SlotState.HELD)))
    keeper.reconcile("node-a", NOON)
    assert guarded(harness) == {HANDOVER_TAINT: str(want)}


def test_a_pod_with_an_absurd_note_keeps_no_guard_from_others(harness: OperatorHarness) -> None:
    keeper = node_guard(harness)
    absurd = owner_pod("web-1", given=note(1, deadline=int("9" * 400)))
    harness.know(
        owner_pod("web-0", given=note(0)),
        absurd,
        of=place(slot(SlotState.HELD, 0), slot(SlotState.HELD, 1), replicas=2),
    )
    keeper.reconcile("node-a", NOON)
    assert guarded(harness) == {HANDOVER_TAINT: str(DEADLINE)}
    assert harness.cache.observe(PLACE_UID) is not None


def test_a_node_that_is_gone_needs_no_guard(harness: OperatorHarness) -> None:
    harness.know(owner_pod(given=note()), of=place(slot(SlotState.HELD)))
    NodeGuard(harness.context, fences(harness)).reconcile("node-a", NOON)
    assert harness.cache.guards.deadline("node-a") is None


# --- orphans and the sweep


def orphans(harness: OperatorHarness) -> OrphanCollector:
    return OrphanCollector(harness.context, harness.executor)


def test_what_belongs_to_a_reservation_that_is_gone_is_released(harness: OperatorHarness) -> None:
    owner, held = owner_pod(given=note()), placeholder()
    harness.know(owner, held)
    orphans(harness).release(PLACE_UID)
    assert not harness.stored(owner).spec.scheduling_gates
    assert ("berth-system", held.metadata.name) not in harness.api.objects["pods"]


@pytest.mark.parametrize("deleted", [None, "2026-11-21T11:59:00Z"])
def test_the_placeholder_of_a_reservation_that_is_gone_waits_for_no_kubelet(
    harness: OperatorHarness, monkeypatch: pytest.MonkeyPatch, deleted: str | None
) -> None:
    graces: list[int | None] = []
    monkeypatch.setattr(harness.api, "delete", lambda *_, grace_seconds, **__: graces.append(grace_seconds))
    harness.know(placeholder(deleted=deleted))
    orphans(harness).release(PLACE_UID)
    assert graces == [0]


def test_what_belongs_to_a_reservation_that_was_only_unheard_of_is_kept(harness: OperatorHarness) -> None:
    owner = owner_pod(given=note())
    harness.know(owner)
    harness.api.put(RESERVATIONS, as_api(place(), api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND))
    orphans(harness).release(PLACE_UID)
    assert harness.stored(owner).spec.scheduling_gates
    assert harness.cache.reservation(PLACE_UID) is not None


def test_one_orphan_that_cannot_be_released_keeps_no_other_back(harness: OperatorHarness) -> None:
    first, second = owner_pod("web-0"), owner_pod("web-1")
    harness.know(first, second)
    harness.api.faults["patch pods web-0"] = error(InvalidObjectError)
    with pytest.raises(InvalidObjectError):
        orphans(harness).release(PLACE_UID)
    assert not harness.stored(second).spec.scheduling_gates


def test_a_gate_without_a_label_is_taken_off_and_only_ours(harness: OperatorHarness) -> None:
    stray = pod("stray", gates=["example.com/wait", HANDOVER_GATE])
    labelled, other = owner_pod(), pod("other", gates=["example.com/wait"])
    for one in (stray, labelled, other):
        harness.api.put(PODS, as_api(one))
    orphans(harness).release_stray_gates()
    assert [g.name for g in harness.stored(stray).spec.scheduling_gates] == ["example.com/wait"]
    assert [g.name for g in harness.stored(labelled).spec.scheduling_gates] == [HANDOVER_GATE]
    assert [g.name for g in harness.stored(other).spec.scheduling_gates] == ["example.com/wait"]


def sweep(harness: OperatorHarness) -> Resync:
    parts = (harness.scope, harness.pod_groups, fences(harness))
    return Resync(harness.context, *parts, harness.queued.append)


def test_a_sweep_queues_everything_that_could_be_amiss(harness: OperatorHarness) -> None:
    node_guard(harness, OURS)
    harness.know(owner_pod(given=note(node="node-b")), placeholder())
    harness.api.put(
        RESERVATIONS, as_api(place(uid="fresh"), api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND)
    )
    harness.queued.clear()
    sweep(harness).run()
    names = {(key.kind, key.name) for key in harness.queued}
    assert names >= {
        (KeyKind.RESERVATION, PLACE_UID),
        (KeyKind.RESERVATION, "fresh"),
        (KeyKind.NODE, "node-a"),
        (KeyKind.NODE, "node-b"),
        (STRAYS_KEY.kind, ""),
        (ENDING_KEY.kind, ""),
    }


def with_namespaces_that_end(harness: OperatorHarness, *reservations: Reservation) -> None:
    """Store Reservations; the namespaces default and elsewhere are being deleted, shop is not."""
    for reservation in reservations:
        harness.know(of=reservation)
        harness.api.put(RESERVATIONS, as_api(reservation, api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND))
    for name, phase in (("default", "Terminating"), ("shop", "Active"), ("elsewhere", "Terminating")):
        harness.api.put(NAMESPACES, {"metadata": {"name": name}, "status": {"phase": phase}})


def uids_left(harness: OperatorHarness) -> set[str]:
    return {body["metadata"]["uid"] for body in harness.api.raw(RESERVATIONS)}


def test_reservations_of_a_namespace_that_is_being_deleted_are_deleted(harness: OperatorHarness) -> None:
    with_namespaces_that_end(
        harness,
        place(slot(SlotState.HELD), uid="ending"),
        place(slot(SlotState.HELD), namespace="shop", uid="other"),
        place(slot(SlotState.RELEASED), name="ended", uid="ended", phase=ReservationPhase.FAILED),
    )
    EndingNamespaces(harness.context).clear()
    assert uids_left(harness) == {"other", "ended"}


def test_a_reservation_that_cannot_be_deleted_with_its_namespace_keeps_no_other_back(harness: OperatorHarness) -> None:
    kept, ending = (place(slot(SlotState.HELD), name=name, uid=name) for name in ("kept", "ending"))
    with_namespaces_that_end(harness, kept, ending)
    harness.api.faults["delete reservations kept"] = error(InvalidObjectError)
    with pytest.raises(InvalidObjectError):
        EndingNamespaces(harness.context).clear()
    assert uids_left(harness) == {"kept"}


def test_namespaces_are_not_listed_while_nothing_is_reserved(harness: OperatorHarness) -> None:
    EndingNamespaces(harness.context).clear()
    assert [call for call in harness.api.calls if call.plural == NAMESPACES.plural] == []


def test_a_sweep_begins_with_reservations_that_lack_a_placeholder(harness: OperatorHarness) -> None:
    whole, lacking = place(slot(SlotState.HELD)), place(slot(SlotState.HELD), name="lacking", uid="lacking")
    harness.know(placeholder(), of=whole)
    harness.know(of=lacking)
    for one in (whole, lacking):
        harness.api.put(RESERVATIONS, as_api(one, api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND))
    sweep(harness).run()
    asked = [key.name for key in harness.queued if key.kind is KeyKind.RESERVATION]
    assert asked[-2:] == ["lacking", PLACE_UID]


def test_four_sweeps_look_at_every_known_reservation_once(harness: OperatorHarness) -> None:
    uids = [f"uid-{number}" for number in range(40)]
    for uid in uids:
        harness.know(of=named(uid))
    sweeper = sweep(harness)
    sweeper.run()
    harness.queued.clear()
    turns = []
    for _ in range(4):
        sweeper.run(everything=False)
        turns.append([key.name for key in harness.queued if key.kind is KeyKind.RESERVATION])
        harness.queued.clear()
    assert sorted(uid for turn in turns for uid in turn) == sorted(uids)
    assert all(turns)


def named(uid: str, version: str = "1") -> Reservation:
    made = place()
    meta = msgspec.structs.replace(made.metadata, uid=uid, name=f"place-{uid}", resource_version=version)
    return msgspec.structs.replace(made, metadata=meta)


def test_a_sweep_reads_in_full_only_what_is_news(harness: OperatorHarness) -> None:
    for uid in ("uid-0", "uid-1", "uid-2"):
        harness.know(of=named(uid))
    sweep(harness).run()
    harness.cache.put_reservation(named("gone"))
    harness.know(of=named("uid-1"))
    harness.api.calls.clear()
    sweep(harness).run()
    assert [call for call in harness.api.calls if call.startswith("get")] == ["get reservations place-uid-1"]
    assert {r.metadata.uid for r in harness.cache.reservations()} == {"uid-0", "uid-1", "uid-2"}


def test_where_there_is_no_reservation_only_each_fourth_sweep_asks_for_them(harness: OperatorHarness) -> None:
    sweeper = sweep(harness)
    sweeper.run()
    for _ in range(20):
        sweeper.run(everything=False)
    harness.api.calls.clear()
    for _ in range(4):
        sweeper.run(everything=False)
    assert harness.api.calls.count("list reservations ") == 1
    harness.know(of=named("new"))
    sweeper.run(everything=False)
    sweeper.run(everything=False)
    assert harness.api.calls.count("list reservations ") == 3


def our_class() -> dict[str, Any]:
    labels = {MANAGED_LABEL: MANAGED_BY_OPERATOR}
    return {"metadata": {"name": "berth-placeholder-0", "labels": labels}, "value": 0, "preemptionPolicy": "Never"}


def test_priority_classes_of_ours_stay_between_uses(harness: OperatorHarness) -> None:
    harness.know_classes(our_class())
    sweep(harness).run()
    assert ("", "berth-placeholder-0") in harness.api.objects["priorityclasses"]


def test_a_class_that_somebody_deleted_is_made_again(harness: OperatorHarness) -> None:
    harness.know_classes(our_class())
    harness.priorities.forget(0)
    harness.api.objects["priorityclasses"].pop(("", "berth-placeholder-0"))
    harness.perform(CreatePlaceholder(task(), 0))
    assert ("", "berth-placeholder-0") in harness.api.objects["priorityclasses"]


# --- the webhook's scope


def covered(harness: OperatorHarness) -> list[str] | None:
    body = harness.api.objects[MUTATING_WEBHOOKS.plural].get(("", WEBHOOK_CONFIGURATION))
    if body is None:
        return None
    values: list[str] = body["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"]
    return values


def test_the_scope_follows_the_live_reservations(harness: OperatorHarness) -> None:
    seen = []
    harness.scope.reconcile()
    seen.append(covered(harness))
    harness.cache.put_reservation(place(uid="one"))
    harness.cache.put_reservation(place(uid="two", namespace="shop"))
    harness.scope.reconcile()
    seen.append(covered(harness))
    harness.cache.remove_reservation("one")
    harness.scope.refresh()
    seen.append(covered(harness))
    harness.cache.remove_reservation("two")
    harness.scope.reconcile()
    seen.append(covered(harness))
    assert seen == [None, ["default", "shop"], ["shop"], None]


def test_a_scope_that_is_absent_is_removed_again_only_now_and_then(harness: OperatorHarness) -> None:
    """A cluster at rest has no call a minute for it; what a backup brings back is removed all the same."""
    harness.scope.reconcile()
    harness.api.calls.clear()
    for _ in range(9):
        harness.scope.refresh()
    assert harness.api.calls == []

    harness.api.create(MUTATING_WEBHOOKS, {"metadata": {"name": WEBHOOK_CONFIGURATION}})
    harness.scope.refresh()
    assert covered(harness) is None


def test_a_replica_that_begins_to_lead_removes_the_scope_of_the_one_before(harness: OperatorHarness) -> None:
    harness.scope.reconcile()
    harness.api.create(MUTATING_WEBHOOKS, {"metadata": {"name": WEBHOOK_CONFIGURATION}})
    harness.scope.refresh(everything=True)
    assert covered(harness) is None


def test_a_scope_that_came_back_with_a_reservation_goes_with_it(harness: OperatorHarness) -> None:
    harness.scope.reconcile()
    harness.cache.put_reservation(place())
    harness.scope.ensure("default")
    harness.cache.remove_reservation(place().metadata.uid)
    harness.scope.reconcile()
    assert covered(harness) is None


def test_a_namespace_whose_reservations_come_and_go_changes_the_scope_only_at_a_sweep(harness: OperatorHarness) -> None:
    harness.cache.put_reservation(place(uid="one"))
    harness.cache.put_reservation(place(uid="two", namespace="shop"))
    harness.scope.reconcile()
    harness.cache.remove_reservation("one")
    assert not harness.scope.reconcile()
    harness.cache.put_reservation(place(uid="three"))
    assert not harness.scope.reconcile()
    assert covered(harness) == ["default", "shop"]


def test_a_new_authority_is_registered_at_once(harness: OperatorHarness) -> None:
    harness.cache.put_reservation(place())
    harness.scope.reconcile()
    harness.client_config["caBundle"] = "Yg=="
    assert harness.scope.reconcile()
    body = harness.api.objects[MUTATING_WEBHOOKS.plural]["", WEBHOOK_CONFIGURATION]
    assert {one["clientConfig"]["caBundle"] for one in body["webhooks"]} == {"Yg=="}


def test_a_scope_that_somebody_took_away_is_written_again_by_the_next_sweep(harness: OperatorHarness) -> None:
    harness.cache.put_reservation(place())
    harness.scope.reconcile()
    harness.api.objects.clear()
    harness.scope.reconcile()
    assert covered(harness) is None
    harness.scope.refresh()
    assert covered(harness) == ["default"]


def test_a_scope_that_stands_is_not_written_again(harness: OperatorHarness) -> None:
    harness.cache.put_reservation(place())
    harness.scope.reconcile()
    harness.api.calls.clear()
    harness.scope.reconcile()
    harness.scope.ensure("default")
    assert harness.api.calls == []


def test_what_is_seen_is_what_was_put() -> None:
    """The builder of observations and the cache agree, so that decisions are tested on what really is seen."""
    cache = Cache(lambda _key: None)
    reservation, held, owner = place(slot(SlotState.HELD)), placeholder(), owner_pod()
    cache.put_reservation(reservation)
    cache.put_placeholder(held)
    cache.put_owner(owner)
    cache.put_node(msgspec.convert({"metadata": {"name": "node-a"}}, GuardableNode))
    cache.put_verdict(PLACE_UID, None)
    assert cache.observe(PLACE_UID) == observe(reservation, held, owner)
