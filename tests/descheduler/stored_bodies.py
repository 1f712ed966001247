"""The making of plans and policies as an API server holds them: a case says what matters to it."""

# ruff: noqa: ANN401 - raw objects

from collections.abc import Mapping, Sequence
from typing import Any

Raw = dict[str, Any]

CREATED = "2026-11-21T12:00:00Z"


def move(pod: str = "web-1", source: str = "low-1", target: str = "high-1", *, wave: int = 1, **rest: Any) -> Raw:
    planned = {"namespace": "shop", "pod": pod, "podUID": f"uid-{pod}", "source": source, "target": target}
    return {**planned, "requests": {"cpu": "1", "memory": "1Gi"}, "wave": wave, **rest}


def how(pod: str = "web-1", state: str = "Landed", **rest: Any) -> Raw:
    return {"namespace": "shop", "pod": pod, "state": state, **rest}


def plan(
    name: str = "plan-1",
    phase: str | None = "Succeeded",
    *,
    moves: Sequence[Raw] = (move(),),
    statuses: Sequence[Raw] = (),
    freed: Sequence[str] | None = ("low-1",),
    achieved: Mapping[str, Any] | None = None,
    message: str = "",
    created: str = CREATED,
    **spec: Any,
) -> Raw:
    """A plan of a policy; `freed=None` is one that was only asked for."""
    predicted = {"nodes": 4, "moves": len(moves), "waves": 1, "freedNodes": list(freed or ())}
    found = {} if freed is None else {"predicted": predicted, "moves": list(moves)}
    status = {"phase": phase, "message": message, "moves": list(statuses), "achieved": achieved}
    return {
        "apiVersion": "berth.volcano.sh/v1alpha1",
        "kind": "MigrationPlan",
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": created},
        "spec": {"policy": "nightly", "trigger": "Cron", "mode": "Approve", **found, **spec},
        "status": {key: value for key, value in status.items() if value},
    }


def policy(name: str = "nightly", *, status: Mapping[str, Any] | None = None, **spec: Any) -> Raw:
    return {
        "apiVersion": "berth.volcano.sh/v1alpha1",
        "kind": "DeschedulerPolicy",
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": CREATED},
        "spec": {"profiles": [{"name": "default"}], **spec},
        "status": dict(status or {}),
    }
