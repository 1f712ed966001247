"""What an optional part of the descheduler is: a capability, and all that the kernel asks of one.

The kernel is everything outside `capabilities`. It knows a capability only through `registry`, so that without its line
there and its folder the rest is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from berth_core import Clock, DeschedulerPolicy, MigrationPlan, Objective, ObjectReference, Pod, Snapshot
from berth_descheduler.framework.interfaces import PluginSet, PluginType
from berth_descheduler.framework.rules import Rule
from berth_descheduler.planner.goal import Goal

if TYPE_CHECKING:  # a plan is made without an API server and without the sandbox
    from berth_descheduler.picture import Picture
    from berth_kube import KubeClient
    from berth_sandbox.invariants import ClusterState, Violation


_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


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
    """Those of the plan's policy."""


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


class Capability:
    """An optional part of the descheduler, by default one that does nothing but offer its plugin."""

    name: ClassVar[str]
    """The name under which policies enable its plugin, and what its plans record as their strategy."""

    plugin: ClassVar[PluginType]

    goal: ClassVar[Goal[Any, Any] | None] = None
    """What the plans of its balance plugin are for; None where the plugin is none."""

    arguments: ClassVar[Mapping[str, str]] = _NOTHING
    """The plugin's arguments, each with its meaning, as the reference page shows them."""

    may_not_wait: ClassVar[bool] = False
    """Whether runs of a policy whose `deschedule` names the plugin may not wait long for anything."""

    def rules(self, plugins: PluginSet) -> tuple[Rule, ...]:  # noqa: ARG002 - the others answer it
        """Return the rules that hold for every plan, whichever plugins its policy enables."""
        return ()

    def most_fenced_nodes(self, objective: Objective, nodes: int) -> int:  # noqa: ARG002 - the others answer it
        """Return how many of so many nodes a plan of this objective may fence while it waits."""
        return 0

    def why_not_evicted(self, evicted: EvictedPod) -> str | None:  # noqa: ARG002 - the others answer it
        """Return why a pod may not be evicted without a place, "" if it may; None if that is not for it to say."""
        return None

    def own_policies(
        self,
        client: KubeClient,  # noqa: ARG002 - the others answer it
        of_people: Sequence[DeschedulerPolicy],  # noqa: ARG002
    ) -> Iterable[OwnPolicy]:
        """Return the policies that it runs by itself, as the API server and the policies of people are now."""
        return ()

    def work(self, leading: Leading) -> Work | None:  # noqa: ARG002 - the others answer it
        """Return what it does beside the runs of policies while the service leads."""
        return None

    def findings(
        self,
        client: KubeClient,  # noqa: ARG002 - the others answer it
        state: ClusterState,  # noqa: ARG002
        policies: Sequence[DeschedulerPolicy],  # noqa: ARG002
    ) -> Iterator[Violation]:
        """Yield what keeps it from what it promises, for `berth doctor`."""
        yield from ()
