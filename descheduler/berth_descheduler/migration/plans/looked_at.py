"""Checks that an approval is for the plan that was looked at, not for another one under its name.

Between a look and an approval a plan may be deleted and made anew under the same name with other moves. So an approval
names the plan that was looked at, by its uid or its version, and has to find that very plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from berth_core import MigrationPlan, PlannedMove, first_few
from berth_descheduler.migration.plans.conflicts import PlanStateError
from berth_kube import MIGRATION_PLANS, KubeClient, KubeError

_SHOWN: Final = 5
"""How many moves a message names."""


@dataclass(frozen=True, slots=True)
class LookedAt:
    """A plan as it was when it was looked at; at least its uid or its version is known."""

    uid: str = ""
    version: str = ""
    """Its resourceVersion, which changes with everything that is written to it; "" for any."""
    moves: tuple[str, ...] | None = None
    """What it moved, as `describe` says it; None where that is not known."""

    @classmethod
    def of(cls, plan: MigrationPlan) -> Self:
        metadata = plan.metadata
        return cls(metadata.uid, metadata.resource_version, tuple(map(describe, plan.spec.moves)))


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of a plan: its value when the plan was looked at, "" if that is not known, and its value now."""

    field: str
    then: str
    now: str


class AnotherPlanError(PlanStateError):
    """The plan of the name is not the one that was looked at, or has changed since."""

    def __init__(self, message: str, differences: Sequence[Difference]) -> None:
        super().__init__(message)
        self.differences = tuple(differences)


def describe(move: PlannedMove) -> str:
    """Return a move in a line, for a comparison by people."""
    return f"{move.namespace}/{move.pod} from {move.source} to {move.destination}"


def refuse_another_plan(client: KubeClient, plan: MigrationPlan, looked_at: LookedAt) -> None:
    """Raise `AnotherPlanError`, which says what changed, unless a plan is the one that was looked at.

    A plan that was approved at that version, and only then changed, is the same one: to approve it again says nothing.
    """
    metadata = plan.metadata
    is_same_uid = looked_at.uid in ("", metadata.uid)
    is_same_version = looked_at.version in ("", metadata.resource_version)
    if is_same_uid and is_same_version:
        return
    earlier_plan = None if is_same_version else _read_version(client, metadata.name, looked_at.version)
    if earlier_plan is not None and earlier_plan.metadata.uid == metadata.uid and is_same_uid and plan.spec.approved:
        return
    then = looked_at if earlier_plan is None else LookedAt.of(earlier_plan)
    then = LookedAt(looked_at.uid or then.uid, looked_at.version, then.moves)
    raise AnotherPlanError(_sentence(plan, then), _differences(plan, then, earlier_plan))


def _read_version(client: KubeClient, name: str, version: str) -> MigrationPlan | None:
    """Return a plan at an earlier version, which the API server knows for some minutes; None if it does not.

    It only helps to say what changed, so no failure counts.
    """
    try:
        # etcd forgets old revisions at the API server's compaction, every five minutes by default
        # (`--etcd-compaction-interval`).
        return client.get_version(MIGRATION_PLANS, name, version, type=MigrationPlan)
    except KubeError:
        return None


def _sentence(plan: MigrationPlan, then: LookedAt) -> str:
    name, metadata = plan.metadata.name, plan.metadata
    if then.uid and then.uid != metadata.uid:
        change = f"it was made anew under the same name at {metadata.creation_timestamp}"
    else:
        change = f"it was version {then.version}, and is version {metadata.resource_version}"
    moves_now = tuple(map(describe, plan.spec.moves))
    if then.moves is None:
        moves_text = f"it now moves {_listed(moves_now)}"
    elif then.moves == moves_now:
        moves_text = "its moves are the same"
    else:
        gone, new = _missing_from(moves_now, then.moves), _missing_from(then.moves, moves_now)
        moves_text = f"moves that are gone: {_listed(gone)}; new moves: {_listed(new)}"
    return f"plan {name} is not the one that was looked at: {change}; {moves_text}; look at it again"


def _differences(plan: MigrationPlan, then: LookedAt, earlier_plan: MigrationPlan | None) -> list[Difference]:
    now = LookedAt.of(plan)
    pairs = [("uid", then.uid, now.uid), ("version", then.version, now.version)]
    if earlier_plan is not None:
        pairs += [
            ("created", earlier_plan.metadata.creation_timestamp or "", plan.metadata.creation_timestamp or ""),
            ("phase", earlier_plan.phase.value, plan.phase.value),
            ("approved", _yes_or_no(earlier_plan.spec.approved), _yes_or_no(plan.spec.approved)),
            ("aborted", _yes_or_no(earlier_plan.is_aborted), _yes_or_no(plan.is_aborted)),
        ]
    differences = [Difference(field, before, after) for field, before, after in pairs if before != after]
    if then.moves != now.moves:
        then_text = "" if then.moves is None else _listed(then.moves)
        differences.append(Difference("moves", then_text, _listed(now.moves or ())))
    return differences


def _yes_or_no(value: bool) -> str:  # noqa: FBT001 - the value itself is what is written
    return "true" if value else "false"


def _missing_from(kept: tuple[str, ...], moves: tuple[str, ...]) -> tuple[str, ...]:
    kept_moves = frozenset(kept)
    return tuple(move for move in moves if move not in kept_moves)


def _listed(moves: tuple[str, ...]) -> str:
    return first_few(moves, _SHOWN) if moves else "none"
