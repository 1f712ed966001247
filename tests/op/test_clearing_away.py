"""Guards, orphans, priority classes and the webhook's registration go when nothing needs them any more."""

from typing import Any

import msgspec
import pytest

from berth_core.labels import HANDOVER_GATE, HANDOVER_TAINT, MANAGED_BY_OPERATOR, MANAGED_LABEL
from berth_core.names import WEBHOOK_CONFIGURATION
from berth_core.objects import Pod
from berth_core.reservations import API_VERSION, KIND, Reservation, SlotState
from berth_kube.errors import InvalidObjectError
from berth_kube.resources import MUTATING_WEBHOOKS, NODES, PODS, RESERVATIONS
from berth_operator.cache.cache import Cache
from berth_operator.cache.nodes import GuardableNode
from berth_operator.executor.garbage_collector import OrphanCollector, Resync
from berth_operator.executor.guards import FenceManager, NodeGuard
from berth_operator.reconcile.actions import CreatePlaceholder
from berth_operator.settings import HandoverSettings, PlaceholderSettings
from berth_operator.workqueue import STRAYS_KEY, KeyKind
from builders import NOON, as_api, pod, task
from fake_api import error
from handover_builders import DEADLINE, PLACE_UID, note, observe, owner_pod, place, placeholder, slot
from operator_desk import Desk, desk

__all__ = ["desk"]

# --- guards


def guarded(desk: Desk) -> dict[str, str]:
    body = desk.api.get(NODES, "node-a", type=GuardableNode)
    return {taint.key: taint.value for taint in body.spec.taints}


def fences(desk: Desk) -> FenceManager:
    return FenceManager(desk.api.as_client(), desk.cache, desk.priorities, PlaceholderSettings())


def node_guard(desk: Desk, *taints: dict[str, str]) -> NodeGuard:
    body = {"metadata": {"name": "node-a", "uid": "uid-node-a"}, "spec": {"taints": list(taints)}}
    desk.api.put(NODES, body)
    desk.cache.put_node(desk.api.get(NODES, "node-a", type=GuardableNode))
    return NodeGuard(desk.api.as_client(), desk.cache, fences(desk), HandoverSettings())


OURS = {"key": HANDOVER_TAINT, "value": "5", "effect": "NoSchedule"}
THEIRS = {"key": "example.com/mine", "value": "x", "effect": "NoSchedule"}


def test_a_node_is_guarded_until_the_last_deadline_and_keeps_the_taints_of_others(desk: Desk) -> None:
    keeper = node_guard(desk, THEIRS)
    desk.know(
        owner_pod("web-0", given=note(0)),
        owner_pod("web-1", given=note(1, deadline=DEADLINE + 9)),
        of=place(slot(SlotState.HELD, 0), slot(SlotState.HELD, 1), replicas=2),
    )
    keeper.reconcile("node-a", NOON)
    assert guarded(desk) == {"example.com/mine": "x", HANDOVER_TAINT: str(DEADLINE + 9)}
    desk.api.calls.clear()
    keeper.reconcile("node-a", NOON)
    assert desk.api.calls == []


OF_NOBODY: dict[str, tuple[Pod | None, SlotState]] = {
    "nobody needs it": (None, SlotState.HELD),
    "its slot was lost": (owner_pod(given=note()), SlotState.LOST),
    "its slot was taken": (owner_pod(given=note()), SlotState.TAKEN),
}


@pytest.mark.parametrize(("owner", "state"), OF_NOBODY.values(), ids=OF_NOBODY.keys())
def test_a_guard_is_taken_off_when(desk: Desk, owner: Pod | None, state: SlotState) -> None:
    keeper = node_guard(desk, THEIRS, OURS)
    desk.know(*([owner] if owner else []), of=place(slot(state)))
    keeper.reconcile("node-a", NOON)
    assert guarded(desk) == {"example.com/mine": "x"}


VALUES = {
    "its deadline has passed": ("5", DEADLINE),
    "it is no number": ("soon", DEADLINE),
    "it is four hundred nines": ("9" * 400, DEADLINE),
    "it was put on by a clock that was an hour ahead": (str(DEADLINE + 3600), DEADLINE),
    "a hand-over that is over stood longer": (str(DEADLINE + 60), DEADLINE + 60),
}


@pytest.mark.parametrize(("value", "want"), VALUES.values(), ids=VALUES.keys())
def test_a_guard_that_is_needed_stands_until_the_deadline_of_its_hand_over_where(
    desk: Desk, value: str, want: int
) -> None:
    keeper = node_guard(desk, {**OURS, "value": value})
    desk.know(owner_pod(given=note()), of=place(slot(SlotState.HELD)))
    keeper.reconcile("node-a", NOON)
    assert guarded(desk) == {HANDOVER_TAINT: str(want)}


def test_a_pod_with_an_absurd_note_keeps_no_guard_from_others(desk: Desk) -> None:
    keeper = node_guard(desk)
    absurd = owner_pod("web-1", given=note(1, deadline=int("9" * 400)))
    desk.know(
        owner_pod("web-0", given=note(0)),
        absurd,
        of=place(slot(SlotState.HELD, 0), slot(SlotState.HELD, 1), replicas=2),
    )
    keeper.reconcile("node-a", NOON)
    assert guarded(desk) == {HANDOVER_TAINT: str(DEADLINE)}
    assert desk.cache.observe(PLACE_UID) is not None


def test_a_node_that_is_gone_needs_no_guard(desk: Desk) -> None:
    desk.know(owner_pod(given=note()), of=place(slot(SlotState.HELD)))
    NodeGuard(desk.api.as_client(), desk.cache, fences(desk), HandoverSettings()).reconcile("node-a", NOON)
    assert desk.cache.guard_deadline("node-a") is None


# --- orphans and the sweep


def orphans(desk: Desk) -> OrphanCollector:
    return OrphanCollector(desk.api.as_client(), desk.cache, desk.executor)


def test_what_belongs_to_a_reservation_that_is_gone_is_released(desk: Desk) -> None:
    owner, held = owner_pod(given=note()), placeholder()
    desk.know(owner, held)
    orphans(desk).release(PLACE_UID)
    assert not desk.stored(owner).spec.scheduling_gates
    assert ("pods", "berth-system", held.metadata.name) not in desk.api.objects


@pytest.mark.parametrize("deleted", [None, "2026-11-21T11:59:00Z"])
def test_the_placeholder_of_a_reservation_that_is_gone_waits_for_no_kubelet(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, deleted: str | None
) -> None:
    graces: list[int | None] = []
    monkeypatch.setattr(desk.api, "delete", lambda *_, grace_seconds, **__: graces.append(grace_seconds))
    desk.know(placeholder(deleted=deleted))
    orphans(desk).release(PLACE_UID)
    assert graces == [0]


def test_what_belongs_to_a_reservation_that_was_only_unheard_of_is_kept(desk: Desk) -> None:
    owner = owner_pod(given=note())
    desk.know(owner)
    desk.api.put(RESERVATIONS, as_api(place(), api_version=API_VERSION, kind=KIND))
    orphans(desk).release(PLACE_UID)
    assert desk.stored(owner).spec.scheduling_gates
    assert desk.cache.reservation(PLACE_UID) is not None


def test_one_orphan_that_cannot_be_released_keeps_no_other_back(desk: Desk) -> None:
    first, second = owner_pod("web-0"), owner_pod("web-1")
    desk.know(first, second)
    desk.api.faults["patch pods web-0"] = error(InvalidObjectError)
    with pytest.raises(InvalidObjectError):
        orphans(desk).release(PLACE_UID)
    assert not desk.stored(second).spec.scheduling_gates


def test_a_gate_without_a_label_is_taken_off_and_only_ours(desk: Desk) -> None:
    stray = pod("stray", gates=["example.com/wait", HANDOVER_GATE])
    labelled, other = owner_pod(), pod("other", gates=["example.com/wait"])
    for one in (stray, labelled, other):
        desk.api.put(PODS, as_api(one))
    orphans(desk).release_stray_gates()
    assert [g.name for g in desk.stored(stray).spec.scheduling_gates] == ["example.com/wait"]
    assert [g.name for g in desk.stored(labelled).spec.scheduling_gates] == [HANDOVER_GATE]
    assert [g.name for g in desk.stored(other).spec.scheduling_gates] == ["example.com/wait"]


def sweep(desk: Desk) -> Resync:
    return Resync(desk.api.as_client(), desk.cache, desk.scope, desk.priorities, fences(desk), desk.queued.append)


def test_a_sweep_queues_everything_that_could_be_amiss(desk: Desk) -> None:
    node_guard(desk, OURS)
    desk.know(owner_pod(given=note(node="node-b")), placeholder())
    desk.api.put(RESERVATIONS, as_api(place(uid="fresh"), api_version=API_VERSION, kind=KIND))
    desk.queued.clear()
    sweep(desk).run()
    names = {(key.kind, key.name) for key in desk.queued}
    assert names >= {
        (KeyKind.RESERVATION, PLACE_UID),
        (KeyKind.RESERVATION, "fresh"),
        (KeyKind.NODE, "node-a"),
        (KeyKind.NODE, "node-b"),
        (STRAYS_KEY.kind, ""),
    }


def test_a_sweep_begins_with_reservations_that_lack_a_placeholder(desk: Desk) -> None:
    whole, lacking = place(slot(SlotState.HELD)), place(slot(SlotState.HELD), name="lacking", uid="lacking")
    desk.know(placeholder(), of=whole)
    desk.know(of=lacking)
    for one in (whole, lacking):
        desk.api.put(RESERVATIONS, as_api(one, api_version=API_VERSION, kind=KIND))
    sweep(desk).run()
    asked = [key.name for key in desk.queued if key.kind is KeyKind.RESERVATION]
    assert asked[-2:] == ["lacking", PLACE_UID]


def test_four_sweeps_look_at_every_known_reservation_once(desk: Desk) -> None:
    uids = [f"uid-{number}" for number in range(40)]
    for uid in uids:
        desk.know(of=named(uid))
    sweeper = sweep(desk)
    sweeper.run()
    desk.queued.clear()
    turns = []
    for _ in range(4):
        sweeper.run(everything=False)
        turns.append([key.name for key in desk.queued if key.kind is KeyKind.RESERVATION])
        desk.queued.clear()
    assert sorted(uid for turn in turns for uid in turn) == sorted(uids)
    assert all(turns)


def named(uid: str, version: str = "1") -> Reservation:
    made = place()
    meta = msgspec.structs.replace(made.metadata, uid=uid, name=f"place-{uid}", resource_version=version)
    return msgspec.structs.replace(made, metadata=meta)


def test_a_sweep_reads_in_full_only_what_is_news(desk: Desk) -> None:
    for uid in ("uid-0", "uid-1", "uid-2"):
        desk.know(of=named(uid))
    sweep(desk).run()
    desk.cache.put_reservation(named("gone"))
    desk.know(of=named("uid-1"))
    desk.api.calls.clear()
    sweep(desk).run()
    assert [call for call in desk.api.calls if call.startswith("get")] == ["get reservations place-uid-1"]
    assert {r.metadata.uid for r in desk.cache.reservations()} == {"uid-0", "uid-1", "uid-2"}


def our_class() -> dict[str, Any]:
    return {"metadata": {"name": "berth-placeholder-0", "labels": {MANAGED_LABEL: MANAGED_BY_OPERATOR}}, "value": 0}


def test_priority_classes_of_ours_go_with_the_last_reservation(desk: Desk) -> None:
    desk.know_classes(our_class(), {"metadata": {"name": "batch"}, "value": 0})
    sweep(desk).run()
    assert [name for plural, _, name in desk.api.objects if plural == "priorityclasses"] == ["batch"]


def test_priority_classes_stay_while_a_reservation_lives(desk: Desk) -> None:
    desk.know_classes(our_class())
    desk.know(of=place())
    sweep(desk).run()
    assert ("priorityclasses", "", "berth-placeholder-0") in desk.api.objects


def test_a_class_that_somebody_deleted_is_made_again(desk: Desk) -> None:
    desk.know_classes(our_class())
    desk.priorities.forget(0)
    desk.api.objects.pop(("priorityclasses", "", "berth-placeholder-0"))
    desk.perform(CreatePlaceholder(task(), 0))
    assert ("priorityclasses", "", "berth-placeholder-0") in desk.api.objects


# --- the webhook's scope


def covered(desk: Desk) -> list[str] | None:
    body = desk.api.objects.get((MUTATING_WEBHOOKS.plural, "", WEBHOOK_CONFIGURATION))
    if body is None:
        return None
    values: list[str] = body["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"]
    return values


def test_the_scope_follows_the_live_reservations(desk: Desk) -> None:
    seen = []
    desk.scope.reconcile()
    seen.append(covered(desk))
    desk.cache.put_reservation(place(uid="one"))
    desk.cache.put_reservation(place(uid="two", namespace="shop"))
    desk.scope.reconcile()
    seen.append(covered(desk))
    desk.cache.remove_reservation("one")
    desk.scope.reconcile()
    seen.append(covered(desk))
    desk.cache.remove_reservation("two")
    desk.scope.reconcile()
    seen.append(covered(desk))
    assert seen == [None, ["default", "shop"], ["shop"], None]


def test_a_scope_that_somebody_took_away_is_written_again_by_the_next_sweep(desk: Desk) -> None:
    desk.cache.put_reservation(place())
    desk.scope.reconcile()
    desk.api.objects.clear()
    desk.scope.reconcile()
    assert covered(desk) is None
    desk.scope.refresh()
    assert covered(desk) == ["default"]


def test_a_scope_that_stands_is_not_written_again(desk: Desk) -> None:
    desk.cache.put_reservation(place())
    desk.scope.reconcile()
    desk.api.calls.clear()
    desk.scope.reconcile()
    desk.scope.ensure("default")
    assert desk.api.calls == []


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
