"""Owns the settings of one planning: the plugin's arguments, the limits of a plan, and the time to count from.

It does not own how the moves are carried out: those settings are the executor's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from berth_core.clock import format_duration
from berth_core.errors import InputError
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.objects import LabelSelector
from berth_core.policies import LONGEST_GRACE
from berth_descheduler.framework.runtime import PluginSet
from berth_descheduler.planner.arguments import DefragmentationArgs

_POSITIVE = "a whole number from 1 on"

PodName: TypeAlias = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class WaveLimits:
    """How many moves may run together."""

    per_controller: int = 1
    """Pods of one controller in flight at once."""

    per_wave: int = 25
    """Moves in one wave."""

    def __post_init__(self) -> None:
        """Refuse limits that allow nothing."""
        for name in ("per_controller", "per_wave"):
            if getattr(self, name) < 1:
                raise InputError(f"waves.{name}", getattr(self, name), _POSITIVE)


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """What a plan is made for and what limits it."""

    args: DefragmentationArgs = field(default_factory=DefragmentationArgs)

    max_moves: int | None = None
    """The most moves of the plan; None: no limit."""

    max_moves_per_node: int | None = None
    """The most moves off one node; a node that would need more is left alone. None: no limit."""

    max_moves_per_namespace: int | None = None
    """The most moves of pods of one namespace; None: no limit."""

    max_grace: timedelta = LONGEST_GRACE
    """Pods with a longer grace period are not moved: the source would have to wait for it."""

    plugins: PluginSet = field(kw_only=True)
    """What names single pods, what chooses moves for the cluster as a whole, and what keeps pods where they are."""

    node_selector: LabelSelector | None = None
    """Only these nodes give and take pods; None: all."""

    control_plane_nodes: bool = False
    """Whether pods are moved to control-plane nodes; the operator has to hold places there, too."""

    waves: WaveLimits = field(default_factory=WaveLimits)

    resting_pods: Mapping[PodName, datetime] = field(default_factory=dict)
    """The pods that plans have brought to their nodes lately, and when: they are not moved again yet."""

    node_cool_down: timedelta = timedelta(0)
    """How long after pods were moved off a node or onto it it neither gives nor takes pods; 0: at once."""

    now: datetime | None = None
    """The time from which a cool-down counts back; None: no node is cooling down."""

    exact: bool = True
    """Whether the integer program goes on where the search ends, if it is installed and the problem small enough."""

    time_limit_seconds: float | None = 60.0
    """After this long a search or the solver is ended, which the plan then says; None: no limit. Whoever plans counts.

    It is there for safety: limits on rounds and on the solver's tree end both much sooner, so that the same input gives
    the same plan on any machine.
    """

    seed: int = 0
    """What the search's chance comes from; the same seed, the same plan."""

    own_namespace: str = DEFAULT_NAMESPACE
    """Berth's namespace, whose pods are never moved."""

    def __post_init__(self) -> None:
        """Refuse limits that are none."""
        if self.max_moves is not None and self.max_moves < 0:
            raise InputError("maxMoves", self.max_moves, "a whole number from 0 on")
        for name, limit in (
            ("maxMovesPerNode", self.max_moves_per_node),
            ("maxMovesPerNamespace", self.max_moves_per_namespace),
        ):
            if limit is not None and limit < 1:
                raise InputError(name, limit, _POSITIVE)
        if self.max_grace <= timedelta(0):
            raise InputError("maxGracePeriod", format_duration(self.max_grace), "a length of time above 0")
        if self.time_limit_seconds is not None and self.time_limit_seconds <= 0:
            raise InputError("timeLimit", self.time_limit_seconds, "seconds above 0")

    @property
    def node_selectors(self) -> tuple[LabelSelector, ...]:
        """Return the selectors of the nodes that give and take pods: a node has to satisfy all of them."""
        return tuple(one for one in (self.node_selector, self.plugins.node_selector) if one is not None)
