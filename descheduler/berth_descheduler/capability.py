"""What an optional part of the descheduler is: a capability, and all that the kernel asks of one.

The kernel is everything outside `capabilities`. It knows a capability only through `registry`, so that without its line
there and its folder the rest is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from berth_core import (
    Clock,
    DeschedulerPolicy,
    MigrationPlan,
    Objective,
    ObjectReference,
    PlannedMove,
    Pod,
    RunMode,
    Snapshot,
)
from berth_descheduler.framework.enabled_plugins import PluginSet
from berth_descheduler.framework.interfaces import BalancePlugin, DeschedulePlugin, PluginType
from berth_descheduler.framework.rules import Rule
from berth_descheduler.outcome import NotBegun
from berth_descheduler.planner import Plan
from berth_descheduler.planner.goal import ArgumentGroup, Goal
from berth_descheduler.planner.rooms import GuaranteedRoom, RoomOwners
from berth_descheduler.settings import CycleSettings

if TYPE_CHECKING:  # a plan is made without an API server and without the sandbox
    from prometheus_client import CollectorRegistry
    from rich.console import Console, RenderableType

    from berth_core import MoveMethod
    from berth_descheduler.picture import Picture
    from berth_kube import Access, KubeClient
    from berth_sandbox.invariants import ClusterState, Invariant, Violation


class KnownPolicy(Protocol):
    """A policy as the service knows it."""

    def enables(self, balance: str) -> bool | None:
        """Return whether the policy has this balance plugin; None for one that cannot be run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Leading:
    """What the work of the replica that leads is built from."""

    client: KubeClient
    clock: Clock
    picture: Picture
    known_policies: Callable[[], Mapping[str, KnownPolicy]]
    known_plans: Callable[[], Iterable[MigrationPlan]]
    show_kept_nodes: Callable[[int], None]
    """Shows in the metrics how many nodes are kept."""


class Work(Protocol):
    """What a capability does beside the runs of policies, while the service leads."""

    def work_until(self, over: Callable[[], bool]) -> None:
        """Work until `over`; retries whatever fails."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictedPod:
    """A pod that a plan evicts without a place, right before that."""

    pod: Pod
    neighbours: Snapshot
    """The pods and groups of its namespace."""
    own: Snapshot
    """The pods of Berth's namespace."""
    own_namespace: str
    now: datetime
    plugins: PluginSet
    """The plugins of the plan's policy."""


@dataclass(frozen=True, slots=True)
class OwnPolicy:
    """A policy that a capability runs by itself, for an object of its own kind."""

    policy: DeschedulerPolicy
    """Its uid is that of the object, its `suspend` says whether there is nothing to do now."""
    regarding: ObjectReference
    """The object, on which the events of its runs are recorded."""

    @property
    def name(self) -> str:
        return self.policy.metadata.name


class OnDemand(BalancePlugin[Any], DeschedulePlugin, Protocol):
    """The plugin of plans that people ask for one by one, and that no policy makes or limits."""

    moves_at_once: ClassVar[int]
    """How many moves begin together."""

    @property
    def evictor_args(self) -> Mapping[str, Any]:
        """What it asks of `DefaultEvictor`."""
        ...

    def carried_out(self, cycle: CycleSettings) -> CycleSettings:
        """Return the settings by which its plans are carried out."""
        ...

    def why_blocked(self, moves: Iterable[PlannedMove]) -> str:
        """Return why none of a recorded plan's moves begins, "" if nothing is wrong with them."""
        ...

    def why_not_begun(self, plan: Plan, snapshot: Snapshot, mode: RunMode | None) -> NotBegun | None:
        """Return why a new plan does not begin, None if it does."""
        ...


@dataclass(frozen=True, slots=True)
class CapabilityCommand:
    """A command of `berth` that a capability brings."""

    name: str
    heading: str
    """The heading under which the help lists it, after the kernel's own commands."""

    source: str
    """Where it is, as `module:attribute`, imported when it is used: below the capability's folder `cli`."""


class TriedPlan(Protocol):
    """What came of trying a plan out."""

    @property
    def as_predicted(self) -> bool:
        """Return whether nothing differed from the plan; the command fails if something did."""
        ...

    def describe(self) -> object:
        """Return what came of it for JSON."""
        ...

    def print_on(self, console: Console) -> None:
        """Show it to people."""
        ...


class TryPlan(Protocol):
    """Tries a plan out where that harms nothing, after it was made and before it is shown to programs.

    `deployments` are those of the snapshot's ReplicaSets, as the API server has them. Progress goes to `console`.
    """

    def __call__(
        self,
        plan: Plan,
        snapshot: Snapshot,
        deployments: Sequence[Mapping[str, Any]],
        method: MoveMethod,
        console: Console,
        /,
    ) -> TriedPlan: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTrial:
    """An option of `berth plan` by which a capability tries the plan out on a sandbox."""

    option: str
    help: str
    result: str
    """The field of the plan's JSON that has what came of it."""

    source: str
    """Where its `TryPlan` is, as `module:attribute`, imported when it is used: below the capability's folder `cli`."""

    @property
    def parameter(self) -> str:
        """Return the name by which the command gets the option."""
        return self.option.removeprefix("--").replace("-", "_")

    def load(self) -> TryPlan:
        try_plan: TryPlan = resolve_name(self.source)
        return try_plan


class PlanMetrics:
    """Metrics of plans that only one capability has."""

    def planned(self, plan: Plan) -> None:
        """Show what matters of a new plan."""

    def nodes_freed(self, nodes: Sequence[str]) -> None:
        """Count nodes that have become free by the last plan or an earlier one."""


class MeasuredSection(Protocol):
    """What `berth fragmentation` adds of a capability."""

    def render(self) -> RenderableType:
        """Return the section for people."""
        ...

    def fields(self) -> Mapping[str, Any]:
        """Return further fields of the document."""
        ...


@dataclass(frozen=True, slots=True)
class CapacitySection:
    """A section of `berth fragmentation` that a capability brings."""

    help: str
    """A sentence for the help of the command."""

    source: str
    """Where the class that measures a snapshot is, as `module:attribute`: below the capability's folder `cli`."""

    def measure(self, snapshot: Snapshot) -> MeasuredSection:
        measured: MeasuredSection = resolve_name(self.source)(snapshot)
        return measured


OPERATOR_LOG: Final = "kubectl -n {own} logs -l app.kubernetes.io/component=operator --tail=100"
"""The command that shows the operator's log, in an `Advice`."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to say of one invariant.

    `command` has places for `{own}`, `{kind}`, `{namespace}` and `{name}`, and for the `{last}` word of the detail.
    """

    what: str
    why: str
    to_do: str
    command: str
    rights: tuple[Access, ...] = ()
    """What has to be readable, beside `NEEDED_RIGHTS`, for the finding to be true and shown."""

    def command_for(self, violation: Violation, own_namespace: str) -> str:
        """Return the command with the names of what was found."""
        filled, last_word = self.command, violation.detail.rpartition(" ")[2]
        places = {"own": own_namespace, "namespace": violation.namespace, "name": violation.name, "last": last_word}
        places["kind"] = violation.kind
        for placeholder, value in places.items():
            filled = filled.replace(f"{{{placeholder}}}", value)
        return filled


class Capability:
    """An optional part of the descheduler, by default one that does nothing but offer its plugin, if it has one."""

    name: ClassVar[str] = ""
    """The name under which policies enable its plugin, and what its plans record as their strategy; "" without any."""

    plugin: ClassVar[PluginType | None] = None
    """What policies enable; None where it offers them nothing."""

    goal: ClassVar[Goal[Any, Any] | None] = None
    """What the plans of its balance plugin are for; None where the plugin is none."""

    arguments: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """The plugin's arguments, each with its meaning, as the reference page shows them."""

    goal_arguments: ClassVar[Mapping[str, ArgumentGroup[Any]]] = MappingProxyType({})
    """Arguments of `Defragmentation` that it adds to those of a goal, by the goal's name."""

    may_not_wait: ClassVar[bool] = False
    """Whether runs of a policy whose `deschedule` names the plugin may not wait long for anything."""

    commands: ClassVar[tuple[CapabilityCommand, ...]] = ()
    """Commands that it adds to `berth`."""

    plan_trials: ClassVar[tuple[PlanTrial, ...]] = ()
    """Options that it adds to `berth plan`, each of which tries the plan out."""

    capacity_sections: ClassVar[tuple[CapacitySection, ...]] = ()
    """Sections that it adds to `berth fragmentation`."""

    paths: ClassVar[str] = ""
    """Where its paths of the HTTP interface are (`api.capability_paths.CapabilityPaths`), as `module:attribute`.

    Below the capability's folder `api`; imported by the service only.
    """

    def has_planned(self, objective: Objective) -> bool:
        """Return whether a recorded plan is one of its balance plugin."""
        return bool(self.name) and objective.strategy == self.name

    def on_demand(self, objective: Objective) -> OnDemand | None:  # noqa: ARG002 - overridden where it matters
        """Return what people asked for where a plan of this objective belongs to no policy, None if it is not its own.

        Raises `InputError` for invalid arguments.
        """
        return None

    def rules(self, plugins: PluginSet) -> tuple[Rule, ...]:  # noqa: ARG002 - overridden where it matters
        """Return the rules that hold for every plan, whichever plugins its policy enables."""
        return ()

    def most_fenced_nodes(self, objective: Objective, nodes: int) -> int:  # noqa: ARG002 - overridden where it matters
        """Return how many of so many nodes a plan of this objective may fence while it waits."""
        return 0

    def why_not_evicted(self, evicted: EvictedPod) -> str | None:  # noqa: ARG002 - overridden where it matters
        """Return why a pod may not be evicted without a place, "" if it may; None if that is not for it to say."""
        return None

    def room_of_guarantee(
        self,
        snapshot: Snapshot,  # noqa: ARG002 - overridden where it matters
        name: str,  # noqa: ARG002
        owners: RoomOwners | None,  # noqa: ARG002
    ) -> GuaranteedRoom | None:
        """Return what is left of a guarantee, for `MakeRoom` with its name; None if guarantees are not its subject.

        Raises `InputError` for a name that is not known, or has no guarantee.
        """
        return None

    def announce(
        self,
        client: KubeClient,
        clock: Clock,
        plan: Plan,
        snapshot: Snapshot,
    ) -> None:
        """Record events on what a new plan leaves as it is."""

    def own_policies(
        self,
        client: KubeClient,  # noqa: ARG002 - overridden where it matters
        of_people: Sequence[DeschedulerPolicy],  # noqa: ARG002
    ) -> Iterable[OwnPolicy]:
        """Return the policies that it runs by itself, as the API server and the policies of people are now."""
        return ()

    def work(self, leading: Leading) -> Work | None:  # noqa: ARG002 - overridden where it matters
        """Return what it does beside the runs of policies while the service leads."""
        return None

    def plan_metrics(self, registry: CollectorRegistry) -> PlanMetrics | None:  # noqa: ARG002 - overridden where it matters
        """Return its own metrics of plans."""
        return None

    def capacity_gauges(self, registry: CollectorRegistry) -> Callable[[Snapshot], None] | None:  # noqa: ARG002 - overridden where it matters
        """Return what shows in its own metrics what the service has just read of nodes and pods."""
        return None

    def findings(
        self,
        client: KubeClient,  # noqa: ARG002 - overridden where it matters
        state: ClusterState,  # noqa: ARG002
        policies: Sequence[DeschedulerPolicy],  # noqa: ARG002
    ) -> Iterator[Violation]:
        """Yield what keeps it from what it promises, for `berth doctor`."""
        yield from ()

    def advice(self) -> Mapping[Invariant, Advice]:
        """Return what `berth doctor` says of each of its findings."""
        return {}
