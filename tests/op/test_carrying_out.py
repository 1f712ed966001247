"""Actions become calls; what is refused, gone or no longer ours to do is told apart."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from berth_core.labels import HANDOVER_GATE, HANDOVER_TAINT, MANAGED_BY_OPERATOR, MANAGED_LABEL, RESERVATION_LABEL
from berth_core.names import WEBHOOK_CONFIGURATION, probe_name
from berth_core.objects import Pod, PriorityClass
from berth_core.reservations import (
    API_VERSION,
    KIND,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationState,
    ReservationStatus,
    SlotState,
)
from berth_kube.errors import ForbiddenError, InvalidObjectError, KubeError, NotFoundError, ServerError
from berth_kube.resources import MUTATING_WEBHOOKS, NODES, PODS, PRIORITY_CLASSES, RESERVATIONS
from berth_operator.actions import (
    Action,
    Collect,
    CreatePlaceholder,
    DeletePlaceholder,
    Finish,
    Nominate,
    Probe,
    Release,
    Ungate,
    Validate,
)
from berth_operator.allowances import Allowances
from berth_operator.announcements import Announcer
from berth_operator.cache import Cache, GuardableNode
from berth_operator.cluster_rules import ClusterRules
from berth_operator.guards import GuardKeeper
from berth_operator.orphans import OrphanKeeper
from berth_operator.performer import LeaseLostError, Performer
from berth_operator.priorities import Priorities
from berth_operator.proofs import Prover
from berth_operator.settings import HandoverSettings, OperatorSettings
from berth_operator.sweep import Sweep
from berth_operator.validation import Validator
from berth_operator.webhook_scope import WebhookScope
from berth_operator.work_queue import STRAYS_KEY, Key, KeyKind
from builders import NOON, FakeClock, as_api, pod, task
from fake_api import FakeApi, error
from handover_builders import DEADLINE, PLACE_UID, note, observe, owner_pod, place, placeholder, slot


@dataclass
class Desk:
    """The operator's parts around an API server in memory."""

    api: FakeApi
    cache: Cache
    scope: WebhookScope
    queued: list[Key]
    leads: bool = True
    rules: ClusterRules = field(default_factory=ClusterRules)
    announcer: Announcer = field(init=False)
    performer: Performer = field(init=False)

    def __post_init__(self) -> None:
        self.announcer = Announcer(self.api.as_client())
        self.performer = self.performer_that(lambda: self.leads)

    def performer_that(self, leads: Callable[[], bool]) -> Performer:
        settings = OperatorSettings()
        allowances = Allowances(settings.limits, self.rules)
        return Performer(
            self.api.as_client(),
            self.cache,
            Prover(self.api.as_client(), self.cache, self.scope, settings.placeholders),
            settings,
            priorities=self.priorities,
            validator=Validator(self.api.as_client(), self.priorities, allowances, settings.placeholders),
            announcer=self.announcer,
            clock=FakeClock(),
            leads=leads,
        )

    @property
    def priorities(self) -> Priorities:
        return Priorities(self.api.as_client(), self.rules)

    def know_classes(self, *bodies: dict[str, Any]) -> None:
        """Put priority classes on the API server, and have its watch tell of them."""
        for body in bodies:
            self.api.put(PRIORITY_CLASSES, body)
            self.rules.classes.put(msgspec.convert(body, PriorityClass))

    def know(self, *pods: Pod, of: Reservation | None = None) -> None:
        """Put objects on the API server and into the cache."""
        if of is not None:
            self.api.put(RESERVATIONS, as_api(of, api_version=API_VERSION, kind=KIND))
            self.cache.put_reservation(of)
        for one in pods:
            self.api.put(PODS, as_api(one))
            put = self.cache.put_owner if one.metadata.namespace == "default" else self.cache.put_placeholder
            put(one)

    def stored(self, one: Pod) -> Pod:
        found: Pod = self.api.get(PODS, one.metadata.name, namespace=one.metadata.namespace, type=Pod)
        return found

    def perform(self, *actions: Action, of: Reservation | None = None) -> list[str]:
        """Carry out actions and return the calls that this took."""
        self.api.calls.clear()
        self.performer.perform(of or place(), actions)
        return list(self.api.calls)


@pytest.fixture
def desk() -> Desk:
    api = FakeApi()
    queued: list[Key] = []
    cache = Cache(queued.append)
    scope = WebhookScope(
        api.as_client(),
        client_config=lambda: {"url": "https://127.0.0.1:1/handover"},
        live_namespaces=cache.live_namespaces,
        own_namespace="berth-system",
        timeout_seconds=2,
    )
    return Desk(api, cache, scope, queued)


# --- placeholders


def test_a_placeholder_comes_with_its_priority_class(desk: Desk) -> None:
    calls = desk.perform(CreatePlaceholder(task(), 0))
    assert [call.split()[0:2] for call in calls if not call.startswith("get")] == [
        ["create", "priorityclasses"],
        ["create", "pods"],
    ]
    (made,) = desk.cache.placeholders()
    assert made.spec.priority_class_name == "berth-placeholder-0"
    assert made.spec.containers[0].resources.requests["cpu"] == "100m"


def test_a_placeholder_that_is_there_already_is_taken_as_it_is(desk: Desk) -> None:
    desk.perform(CreatePlaceholder(task(), 0))
    (first,) = desk.cache.placeholders()
    desk.perform(CreatePlaceholder(task(), 0))
    assert desk.cache.placeholders() == (first,)


def test_the_kubelet_is_told_when_to_end_a_placeholder(desk: Desk) -> None:
    desk.perform(CreatePlaceholder(task(), 0), of=place(ttl="100s"))
    (made,) = desk.cache.placeholders()
    assert made.spec.active_deadline_seconds == 160


def test_a_placeholder_of_a_far_expiry_has_the_longest_deadline_that_the_api_takes(desk: Desk) -> None:
    desk.perform(CreatePlaceholder(task(), 0), of=place(ttl="2000000h"))
    (made,) = desk.cache.placeholders()
    assert made.spec.active_deadline_seconds == 2**31 - 1


VERDICTS = {
    "the API server refuses the object": (error(InvalidObjectError, "bad"), ReservationReason.INVALID, "task web: bad"),
    "a quota refuses it": (
        error(ForbiddenError, "exceeded quota: few"),
        ReservationReason.FORBIDDEN,
        "task web: exceeded quota: few",
    ),
}


@pytest.mark.parametrize(("fault", "reason", "message"), VERDICTS.values(), ids=VERDICTS.keys())
def test_a_placeholder_that_is_refused_for_good_is_a_verdict(
    desk: Desk, fault: KubeError, reason: ReservationReason, message: str
) -> None:
    desk.know(of=place())
    desk.perform(CreatePlaceholder(task(), 0))
    (made,) = desk.cache.placeholders()
    desk.api.faults[f"create pods {made.metadata.name}"] = fault
    desk.perform(CreatePlaceholder(task(), 0))
    seen = desk.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.verdict is not None
    assert (seen.verdict.reason, seen.verdict.message) == (reason, message)


def test_a_lack_of_rights_is_no_verdict_on_the_reservation(desk: Desk) -> None:
    desk.know(of=place())
    desk.api.faults["create priorityclasses berth-placeholder-0"] = error(ForbiddenError, "no right to create")
    with pytest.raises(ForbiddenError):
        desk.perform(CreatePlaceholder(task(), 0))
    seen = desk.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.verdict is None


def test_a_placeholder_that_is_gone_already_is_forgotten(desk: Desk) -> None:
    desk.cache.put_placeholder(placeholder())
    desk.perform(DeletePlaceholder(placeholder()))
    assert desk.cache.placeholders() == ()


# --- validation and proof


def test_every_template_is_put_to_the_api_server(desk: Desk) -> None:
    both = place(tasks=[task("web"), task("db")])
    desk.know(of=both)
    calls = desk.perform(Validate(), of=both)
    assert sum(call.startswith("dry-run pods") for call in calls) == 2
    seen = desk.cache.observe(PLACE_UID)
    assert seen is not None
    assert (seen.validated, seen.verdict) == (True, None)


def test_what_the_api_server_says_of_a_template_is_told_without_our_own_words(desk: Desk) -> None:
    name = f"{probe_name(PLACE_UID)}-web"
    desk.know(of=place())
    desk.api.faults[f"dry-run pods {name}"] = error(
        InvalidObjectError, f'Pod "{name}" is invalid: spec.containers[0].image: Required value'
    )
    desk.perform(Validate())
    seen = desk.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.verdict is not None
    assert seen.verdict.message == "task web: spec.containers[0].image: Required value"


def test_a_validation_that_could_not_be_made_is_made_again(desk: Desk) -> None:
    desk.know(of=place())
    desk.api.faults[f"dry-run pods {probe_name(PLACE_UID)}-web"] = error(ServerError)
    with pytest.raises(ServerError):
        desk.perform(Validate())
    seen = desk.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.validated is False


def gate(body: dict[str, Any]) -> dict[str, Any]:
    body["spec"]["schedulingGates"] = [{"name": HANDOVER_GATE}]
    body["metadata"]["labels"][RESERVATION_LABEL] = PLACE_UID
    return body


def gate_for_another(body: dict[str, Any]) -> dict[str, Any]:
    body = gate(body)
    body["metadata"]["labels"][RESERVATION_LABEL] = "another"
    return body


PROOFS = {
    "it comes back gated": (gate, True),
    "it comes back as it was": (dict, False),
    "it comes back gated for another": (gate_for_another, False),
}


@pytest.mark.parametrize(("answer", "want"), PROOFS.values(), ids=PROOFS.keys())
def test_the_path_is_proven_by_a_pod_that_comes_back_gated(desk: Desk, answer: Any, want: bool) -> None:  # noqa: ANN401, FBT001 - the case
    desk.know(of=place())
    desk.api.on_dry_run = answer
    desk.perform(Probe())
    seen = desk.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.probe is not None
    assert seen.probe.gated is want
    assert not [key for key in desk.api.objects if key[0] == "pods"]


def test_a_proof_covers_the_namespace_first_and_asks_twice_where_another_replica_may_not_have_heard_yet(
    desk: Desk,
) -> None:
    desk.know(of=place())
    calls = desk.perform(Probe())
    assert calls == [
        f"create mutatingwebhookconfigurations {WEBHOOK_CONFIGURATION}",
        f"dry-run pods {probe_name(PLACE_UID)}",
        f"dry-run pods {probe_name(PLACE_UID)}",
    ]


# --- owner pods


def test_a_pod_is_nominated_and_then_ungated(desk: Desk) -> None:
    owner = owner_pod(given=note())
    desk.know(owner)
    desk.perform(Nominate(owner, "node-a"), Ungate(owner))
    after = desk.stored(owner)
    assert after.status.nominated_node_name == "node-a"
    assert after.spec.scheduling_gates == ()


def test_a_nomination_that_is_refused_keeps_the_gate_on_and_other_pods_going(desk: Desk) -> None:
    first, second = owner_pod("web-0", given=note(0)), owner_pod("web-1", given=note(1))
    desk.know(first, second)
    desk.api.faults["merge pods web-0/status"] = error(ForbiddenError, "no right to pods/status")
    with pytest.raises(ForbiddenError):
        desk.perform(Nominate(first, "node-a"), Ungate(first), Nominate(second, "node-a"), Ungate(second))
    assert desk.stored(first).spec.scheduling_gates
    assert not desk.stored(second).spec.scheduling_gates


def test_a_server_that_fails_ends_the_row(desk: Desk) -> None:
    first, second = owner_pod("web-0"), owner_pod("web-1")
    desk.know(first, second)
    desk.api.faults["patch pods web-0"] = error(ServerError)
    with pytest.raises(ServerError):
        desk.perform(Release(first), Release(second))
    assert desk.stored(second).spec.scheduling_gates


def test_a_released_pod_loses_nomination_gate_label_and_note(desk: Desk) -> None:
    owner = owner_pod(given=note(), nominated_node="node-a")
    desk.know(owner)
    calls = desk.perform(Release(owner))
    after = desk.stored(owner)
    assert calls[:2] == ["merge pods web-0/status", "patch pods web-0"]
    assert (after.status.nominated_node_name, after.spec.scheduling_gates) == ("", ())
    assert (after.metadata.labels, after.metadata.annotations) == ({"app": "web"}, {})
    assert desk.cache.owners() == ()


NOT_OURS = {
    "of a scheduler's own choice": owner_pod(given=note(), nominated_node="node-z"),
    "of a pod without a note": owner_pod(nominated_node="node-a"),
    "of a pod that is bound": owner_pod(given=note(), nominated_node="node-a", node="node-a", gates=()),
}


@pytest.mark.parametrize("owner", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_a_nomination_that_is_not_ours_to_take_stays(desk: Desk, owner: Pod) -> None:
    desk.know(owner)
    desk.perform(Release(owner))
    assert desk.stored(owner).status.nominated_node_name == owner.status.nominated_node_name


def test_a_pod_that_is_gone_is_forgotten(desk: Desk) -> None:
    desk.cache.put_owner(owner_pod(given=note()))
    desk.perform(Finish(owner_pod(given=note())), Nominate(owner_pod(given=note()), "node-a"))
    assert desk.cache.owners() == ()


# --- status, lease, collection


def status(phase: ReservationPhase) -> ReservationStatus:
    return ReservationStatus(state=ReservationState(phase=phase, reason="SlotsHeld", message="1 of 1 slots are held"))


def test_a_status_is_written_where_it_differs_and_told_once(desk: Desk) -> None:
    desk.know(of=place())
    desk.performer.write_status(place(), status(ReservationPhase.AVAILABLE))
    assert desk.announcer.write_next()
    assert [call.split()[:2] for call in desk.api.calls] == [["patch", "reservations"], ["create", "events"]]
    assert not desk.announcer.write_next()
    known = desk.cache.reservation(PLACE_UID)
    assert known is not None
    desk.api.calls.clear()
    desk.performer.write_status(known, status(ReservationPhase.AVAILABLE))
    assert desk.api.calls == []


def test_a_status_of_a_reservation_that_is_gone_is_the_word_that_it_is_gone(desk: Desk) -> None:
    desk.cache.put_reservation(place())
    with pytest.raises(NotFoundError):
        desk.performer.write_status(place(), status(ReservationPhase.AVAILABLE))
    assert desk.cache.reservation(PLACE_UID) is None


def test_nothing_is_written_without_the_lease(desk: Desk) -> None:
    desk.know(owner_pod(), of=place())
    desk.leads = False
    desk.api.calls.clear()
    with pytest.raises(LeaseLostError):
        desk.perform(Release(owner_pod()))
    with pytest.raises(LeaseLostError):
        desk.performer.write_status(place(), status(ReservationPhase.AVAILABLE))
    assert desk.api.calls == []


def test_a_lease_that_is_lost_in_the_middle_ends_the_row(desk: Desk) -> None:
    desk.know(owner_pod("web-0"), owner_pod("web-1"), of=place())
    answers = iter([True, False])
    desk.performer = desk.performer_that(lambda: next(answers))
    with pytest.raises(LeaseLostError):
        desk.perform(Release(owner_pod("web-0")), Release(owner_pod("web-1")))
    assert not desk.stored(owner_pod("web-0")).spec.scheduling_gates
    assert desk.stored(owner_pod("web-1")).spec.scheduling_gates


def test_a_collected_reservation_is_gone(desk: Desk) -> None:
    desk.know(of=place())
    desk.perform(Collect())
    desk.perform(Collect())
    assert desk.cache.reservation(PLACE_UID) is None


# --- guards


def guarded(desk: Desk) -> dict[str, str]:
    body = desk.api.get(NODES, "node-a", type=GuardableNode)
    return {taint.key: taint.value for taint in body.spec.taints}


def guard_keeper(desk: Desk, *taints: dict[str, str]) -> GuardKeeper:
    body = {"metadata": {"name": "node-a", "uid": "uid-node-a"}, "spec": {"taints": list(taints)}}
    desk.api.put(NODES, body)
    desk.cache.put_node(desk.api.get(NODES, "node-a", type=GuardableNode))
    return GuardKeeper(desk.api.as_client(), desk.cache, HandoverSettings())


OURS = {"key": HANDOVER_TAINT, "value": "5", "effect": "NoSchedule"}
THEIRS = {"key": "example.com/mine", "value": "x", "effect": "NoSchedule"}


def test_a_node_is_guarded_until_the_last_deadline_and_keeps_the_taints_of_others(desk: Desk) -> None:
    keeper = guard_keeper(desk, THEIRS)
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


GUARDS_LEFT = {
    "nobody needs it": (None, 0),
    "its hand-over is past its deadline": (owner_pod(given=note()), 31),
    "its hand-over seems to lie in the future: the clock was set back": (owner_pod(given=note()), -3600),
}


@pytest.mark.parametrize(("owner", "seconds"), GUARDS_LEFT.values(), ids=GUARDS_LEFT.keys())
def test_a_guard_is_taken_off_when(desk: Desk, owner: Pod | None, seconds: int) -> None:
    keeper = guard_keeper(desk, THEIRS, OURS)
    desk.know(*([owner] if owner else []), of=place(slot(SlotState.HELD)))
    keeper.reconcile("node-a", NOON + timedelta(seconds=seconds))
    assert guarded(desk) == {"example.com/mine": "x"}


def test_a_node_that_is_gone_needs_no_guard(desk: Desk) -> None:
    desk.know(owner_pod(given=note()), of=place(slot(SlotState.HELD)))
    GuardKeeper(desk.api.as_client(), desk.cache, HandoverSettings()).reconcile("node-a", NOON)
    assert desk.cache.guard_deadline("node-a") is None


# --- orphans and the sweep


def orphans(desk: Desk) -> OrphanKeeper:
    return OrphanKeeper(desk.api.as_client(), desk.cache, desk.performer)


def test_what_belongs_to_a_reservation_that_is_gone_is_released(desk: Desk) -> None:
    owner, held = owner_pod(given=note()), placeholder()
    desk.know(owner, held)
    orphans(desk).release(PLACE_UID)
    assert not desk.stored(owner).spec.scheduling_gates
    assert ("pods", "berth-system", held.metadata.name) not in desk.api.objects


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


def sweep(desk: Desk) -> Sweep:
    return Sweep(desk.api.as_client(), desk.cache, desk.scope, desk.priorities, desk.queued.append)


def test_a_sweep_queues_everything_that_could_be_amiss(desk: Desk) -> None:
    guard_keeper(desk, OURS)
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


def test_a_status_that_somebody_else_changed_is_written_again(desk: Desk) -> None:
    ours = place(slot(SlotState.HELD))
    desk.know(of=ours)
    desk.performer.write_status(ours, ours.status)
    forged = ReservationStatus(state=ReservationState(phase=ReservationPhase.SUCCEEDED))
    body = as_api(ours, api_version=API_VERSION, kind=KIND) | {"status": msgspec.to_builtins(forged)}
    desk.api.put(RESERVATIONS, body)
    desk.cache.put_reservation(desk.api.get(RESERVATIONS, "place", namespace="default", type=Reservation))

    desk.performer.write_status(ours, ours.status)

    assert desk.api.get(RESERVATIONS, "place", namespace="default", type=Reservation).status == ours.status
    assert not desk.cache.is_forged(PLACE_UID)
