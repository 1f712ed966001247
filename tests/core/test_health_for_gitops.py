"""The health checks for Argo CD and Flux, run on statuses of every phase and state."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import cel
import msgspec
import pytest
import yaml
from lupa.lua51 import LuaRuntime

from berth_core import Condition, ReservationPhase
from berth_core.gated_queues import GatedQueueState, GatedQueueStatus
from berth_core.migration_plans import MigrationPlanStatus, PlanPhase
from berth_core.reservations import ReservationState, ReservationStatus
from berth_core.revocable_zones import RevocableZoneStatus, ZoneState
from berth_core.windows import ReservationWindowStatus, WindowState
from conventions.tracked import ROOT

_FOLDER: Final = ROOT / "helm" / "gitops"
_GENERATION: Final = 3
_FLUX_WORDS: Final = {"Healthy": "Current", "Suspended": "Current", "Degraded": "Failed", "Progressing": "InProgress"}


@cache
def _lua_checks() -> dict[str, str]:
    data: dict[str, str] = yaml.safe_load((_FOLDER / "argocd-health.yaml").read_text(encoding="utf-8"))["data"]
    return {key.removeprefix("resource.customizations.health."): script for key, script in data.items()}


@cache
def _cel_checks() -> dict[str, dict[str, str]]:
    patch = yaml.safe_load((_FOLDER / "flux-health.yaml").read_text(encoding="utf-8"))
    return {
        f"{check['apiVersion'].partition('/')[0]}_{check['kind']}": check for check in patch["spec"]["healthCheckExprs"]
    }


def _argocd_health(key: str, stored_object: Mapping[str, Any]) -> str:
    """Return Argo CD's word, from Lua 5.1 with the libraries that Argo CD opens."""
    lua = LuaRuntime(unpack_returned_tuples=True)
    lua.execute("string, math, io, os, debug, coroutine = nil")
    lua.globals().obj = lua.table_from(stored_object, recursive=True)
    return str(lua.execute(_lua_checks()[key]).status)


def _flux_health(key: str, stored_object: Mapping[str, Any]) -> str:
    """Return Flux's word: generation first, then inProgress, failed and current, and InProgress if none is true.

    An expression that reads an absent field is an error, and Flux goes on waiting.
    """
    generation = stored_object["metadata"]["generation"]
    if stored_object.get("status", {}).get("observedGeneration", generation) != generation:
        return "InProgress"
    for field_name, word in (("inProgress", "InProgress"), ("failed", "Failed"), ("current", "Current")):
        try:
            is_true = cel.evaluate(_cel_checks()[key][field_name], dict(stored_object))
        except RuntimeError:
            return "InProgress"
        assert isinstance(is_true, bool)
        if is_true:
            return word
    return "InProgress"


def _stored(status: object, spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"generation": _GENERATION},
        "spec": dict(spec or {}),
        "status": msgspec.to_builtins(status),
    }


def _conditions(**status_by_type: str) -> tuple[Condition, ...]:
    """Return conditions from `Type="Status"` or `Type="Status Reason"`."""
    parts_by_type = {type_: text.split() for type_, text in status_by_type.items()}
    return tuple(
        Condition(type=type_, status=parts[0], reason=parts[-1], message=f"{type_} is {parts[0]}")
        for type_, parts in parts_by_type.items()
    )


def _reservation(phase: ReservationPhase) -> dict[str, Any]:
    return _stored(ReservationStatus(observed_generation=_GENERATION, state=ReservationState(phase=phase)))


def _window(state: WindowState, **conditions: str) -> dict[str, Any]:
    return _stored(
        ReservationWindowStatus(
            observed_generation=_GENERATION, state=state, conditions=_conditions(Sufficient="Unknown", **conditions)
        )
    )


def _zone(state: ZoneState, **conditions: str) -> dict[str, Any]:
    return _stored(
        RevocableZoneStatus(
            observed_generation=_GENERATION,
            state=state.value,
            conditions=_conditions(**{"Scheduled": "True", "Fenced": "True"} | conditions),
        )
    )


def _queue(state: GatedQueueState, **conditions: str) -> dict[str, Any]:
    return _stored(
        GatedQueueStatus(
            observed_generation=_GENERATION,
            state=state,
            conditions=_conditions(**{"Accepted": "True", "Enforced": "True", "Covered": "True"} | conditions),
        )
    )


def _policy(*, suspend: bool = False, **conditions: str) -> dict[str, Any]:
    return {
        "metadata": {"generation": _GENERATION},
        "spec": {"suspend": suspend},
        "status": {
            "observedGeneration": _GENERATION,
            "conditions": msgspec.to_builtins(_conditions(**conditions)),
        },
    }


def _plan(phase: PlanPhase, *, mode: str = "Auto", **spec: bool) -> dict[str, Any]:
    return _stored(MigrationPlanStatus(phase=phase), {"mode": mode, **spec})


_RESERVATION: Final = "batch.volcano.sh_Reservation"
_WINDOW: Final = "berth.volcano.sh_ReservationWindow"
_ZONE: Final = "berth.volcano.sh_RevocableZone"
_QUEUE: Final = "berth.volcano.sh_Queue"
_POLICY: Final = "berth.volcano.sh_DeschedulerPolicy"
_PLAN: Final = "berth.volcano.sh_MigrationPlan"

_HEALTH_OF_RESERVATIONS: Final = {
    ReservationPhase.PENDING: "Progressing",
    ReservationPhase.WAITING: "Progressing",
    ReservationPhase.AVAILABLE: "Healthy",
    ReservationPhase.SUCCEEDED: "Healthy",
    ReservationPhase.FAILED: "Degraded",
}
_HEALTH_OF_PLANS: Final = {
    PlanPhase.REQUESTED: "Progressing",
    PlanPhase.APPROVED: "Progressing",
    PlanPhase.RUNNING: "Progressing",
    PlanPhase.SUCCEEDED: "Healthy",
    PlanPhase.PARTIAL: "Degraded",
    PlanPhase.FAILED: "Degraded",
    PlanPhase.ABORTED: "Degraded",
}
_OBJECTS: Final[dict[str, tuple[str, dict[str, Any], str]]] = {
    **{
        f"a Reservation that is {phase}": (_RESERVATION, _reservation(phase), want_health)
        for phase, want_health in _HEALTH_OF_RESERVATIONS.items()
    },
    **{
        f"a window that is {state}": (_WINDOW, _window(state, Scheduled="True OnSchedule"), "Healthy")
        for state in (WindowState.CLOSED, WindowState.RESERVING, WindowState.OPEN)
    },
    "a window that is switched off": (
        _WINDOW,
        _window(WindowState.SUSPENDED, Scheduled="False Suspended"),
        "Suspended",
    ),
    "a window with a wrong field": (_WINDOW, _window(WindowState.INVALID, Scheduled="False Invalid"), "Degraded"),
    "a window beyond its namespace's limit": (
        _WINDOW,
        _window(WindowState.CLOSED, Scheduled="False TooManyWindows"),
        "Degraded",
    ),
    **{
        f"a zone that is {state}": (_ZONE, _zone(state), "Healthy")
        for state in (ZoneState.CLOSED, ZoneState.OPEN, ZoneState.EMPTYING)
    },
    "a zone that is switched off": (
        _ZONE,
        _zone(ZoneState.SUSPENDED, Scheduled="False Suspended"),
        "Suspended",
    ),
    "a zone with a wrong field": (
        _ZONE,
        _zone(ZoneState.INVALID, Scheduled="False Invalid", Fenced="False WithoutFence"),
        "Degraded",
    ),
    "a zone without nodes": (_ZONE, _zone(ZoneState.CLOSED, Fenced="Unknown NoNodes"), "Healthy"),
    "a zone with a node without a fence": (_ZONE, _zone(ZoneState.CLOSED, Fenced="False WithoutFence"), "Progressing"),
    "a queue that admits pods": (_QUEUE, _queue(GatedQueueState.OPEN), "Healthy"),
    "a queue whose guarantee others use": (_QUEUE, _queue(GatedQueueState.OPEN, Covered="False"), "Healthy"),
    "a queue without namespaces": (_QUEUE, _queue(GatedQueueState.OPEN, Enforced="False NoNamespaces"), "Healthy"),
    "a queue whose namespace another has": (
        _QUEUE,
        _queue(GatedQueueState.OPEN, Enforced="False OfAnother"),
        "Degraded",
    ),
    "a queue that is switched off": (
        _QUEUE,
        _queue(GatedQueueState.SUSPENDED, Accepted="Unknown Suspended", Enforced="False Suspended"),
        "Suspended",
    ),
    "a queue whose guarantee does not count": (
        _QUEUE,
        _queue(GatedQueueState.REFUSED, Accepted="False AboveTotal"),
        "Degraded",
    ),
    "a policy that can be run": (_POLICY, _policy(Valid="True", Scheduled="True Cron"), "Healthy"),
    "a policy without a trigger": (_POLICY, _policy(Valid="True", Scheduled="False OnRequest"), "Healthy"),
    "a policy that is switched off": (
        _POLICY,
        _policy(suspend=True, Valid="True", Scheduled="False Suspended"),
        "Suspended",
    ),
    "a policy with a wrong field": (_POLICY, _policy(Valid="False", Scheduled="False NotValid"), "Degraded"),
    "a wrong policy that is switched off": (
        _POLICY,
        _policy(suspend=True, Valid="False", Scheduled="False NotValid"),
        "Degraded",
    ),
    **{
        f"a plan that is {phase}": (_PLAN, _plan(phase), want_health) for phase, want_health in _HEALTH_OF_PLANS.items()
    },
    "a plan that is only shown": (_PLAN, _plan(PlanPhase.PROPOSED, mode="Plan"), "Healthy"),
    "a plan that has its approval and has not begun": (
        _PLAN,
        _plan(PlanPhase.PROPOSED, mode="Approve", approved=True),
        "Progressing",
    ),
}


@pytest.mark.parametrize(("key", "stored_object", "want_health"), list(_OBJECTS.values()), ids=list(_OBJECTS))
def test_both_tools_say_the_same_of(key: str, stored_object: dict[str, Any], want_health: str) -> None:
    assert _argocd_health(key, stored_object) == want_health
    assert _flux_health(key, stored_object) == _FLUX_WORDS[want_health]


def test_a_plan_that_waits_for_its_approval_is_suspended_for_argocd_and_awaited_by_flux() -> None:
    plan = _plan(PlanPhase.PROPOSED, mode="Approve")

    assert _argocd_health(_PLAN, plan) == "Suspended"
    assert _flux_health(_PLAN, plan) == "InProgress"


def test_every_phase_and_state_has_an_object() -> None:
    statuses = [stored_object["status"] for _, stored_object, _ in _OBJECTS.values()]
    names_by_field = {
        "phase": {status.get("phase") for status in statuses},
        "state": {str(status.get("state")) for status in statuses},
    }

    assert set(PlanPhase) <= names_by_field["phase"]
    assert {*WindowState, *ZoneState, *GatedQueueState} <= names_by_field["state"]
    assert set(_HEALTH_OF_RESERVATIONS) == set(ReservationPhase)


def test_both_tools_know_every_kind() -> None:
    crds = [yaml.safe_load(path.read_text(encoding="utf-8"))["spec"] for path in (ROOT / "crds").glob("*.yaml")]
    keys = {f"{crd['group']}_{crd['names']['kind']}" for crd in crds}

    assert len(keys) == 6
    assert set(_lua_checks()) == set(_cel_checks()) == keys


@pytest.mark.parametrize("key", sorted({key for key, _, _ in _OBJECTS.values()}))
@pytest.mark.parametrize("status", [None, {}], ids=["no status", "an empty status"])
def test_an_object_without_a_status_is_awaited(key: str, status: dict[str, Any] | None) -> None:
    stored_object = {
        "metadata": {"generation": _GENERATION},
        "spec": {},
        **({} if status is None else {"status": status}),
    }

    assert _argocd_health(key, stored_object) == "Progressing"
    assert _flux_health(key, stored_object) == "InProgress"


@pytest.mark.parametrize(
    ("key", "stored_object"),
    [(key, stored_object) for key, stored_object, _ in _OBJECTS.values() if key != _PLAN],
    ids=[name for name, (key, _, _) in _OBJECTS.items() if key != _PLAN],
)
def test_a_status_of_an_earlier_generation_says_nothing_of(key: str, stored_object: dict[str, Any]) -> None:
    changed_object = {**stored_object, "metadata": {"generation": _GENERATION + 1}}

    assert _argocd_health(key, changed_object) == "Progressing"
    assert _flux_health(key, changed_object) == "InProgress"
