"""What a plan is for: everything that the program asks about that.

A goal has a folder in `berth_descheduler.goals`. Other modules do not ask which goal it is: they ask the goal.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

from berth_core import Deadline, DeschedulerPolicy, Objective, Snapshot
from berth_core.object_lists import ObjectKind
from berth_descheduler.framework.rules import Rule
from berth_descheduler.planner.planning import Plan
from berth_descheduler.planner.problem import Strategy
from berth_descheduler.planner.rooms import RoomOfGuarantee
from berth_descheduler.planner.sentences import Figure, bound_figures, judge, pods_moved_instead
from berth_descheduler.planner.settings import PlannerSettings, Thresholds

Own = TypeVar("Own")
"""What is read from the arguments that only one goal has."""

Asked = TypeVar("Asked")
"""What a strategy is asked for."""

Merit: TypeAlias = tuple[int | Fraction, ...]
"""What a plan brings; more is better."""

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_WORD_START: Final = re.compile("(?<!^)(?=[A-Z])")


class GoalArguments(Protocol):
    """The arguments of a profile, as goals read them."""

    @property
    def resource_type(self) -> str: ...

    @property
    def low(self) -> Thresholds: ...

    @property
    def defragment(self) -> Thresholds: ...

    @property
    def protection(self) -> Thresholds: ...

    @property
    def number_of_nodes(self) -> int: ...

    @property
    def empties_whole_nodes(self) -> bool: ...

    @property
    def weighs_nodes(self) -> bool:
        """Return whether a rule that they make says what nodes cost."""
        ...

    @property
    def room_of_guarantee(self) -> RoomOfGuarantee: ...

    @property
    def own(self) -> Any:  # noqa: ANN401 - each goal knows what it has read
        """What the goal has read from its own arguments."""
        ...


@dataclass(frozen=True, slots=True)
class GoalOption:
    """An option of the command line that means something with one goal only."""

    flag: str
    """As it is typed, such as `--shape`."""

    metavar: str
    help: str
    fields: tuple[str, ...]
    """The arguments that it sets, as errors name them."""

    is_repeated: bool = False
    is_quoted_whole: bool = False
    """Whether an error quotes all that was typed, not only the part that is wrong."""

    @property
    def parameter(self) -> str:
        """Return the name under which the command gets its value."""
        return self.flag.removeprefix("--").replace("-", "_")


@dataclass(frozen=True, slots=True)
class ArgumentWarning:
    """What will not work well, and the argument that causes it."""

    argument: str
    message: str


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A field that names or selects something that the cluster does not have."""

    field: str
    message: str
    selects_nothing: bool = False
    """Whether nothing is left that the field allows."""


@dataclass(frozen=True, slots=True)
class GoalLimit(Generic[Asked]):
    """An argument of a goal that may keep its plans from doing more."""

    field: str
    condition: str
    """What would have to be so, as in "without numberOfNodes: 3"."""

    lift: Callable[[Asked], Asked]
    is_about_moves: bool = False
    """Whether people read of it beside the limits on moves, before those on nodes."""

    helps_only_alone: bool = False
    """Whether to lift it beside others may bring less, as more low nodes are fewer targets."""


class ArgumentGroup(ABC, Generic[Own]):
    """Arguments that only plans for one goal have: those of the goal itself, and those that a capability adds."""

    arguments: ClassVar[Mapping[str, str]] = _NOTHING
    """Each with its meaning."""

    options: ClassVar[tuple[GoalOption, ...]] = ()
    """The options of the command line that set them."""

    may_read: ClassVar[tuple[ObjectKind, ...]] = ()
    """The kinds beside those of a snapshot that they may ask to read."""

    @abstractmethod
    def read(self, raw: Mapping[str, Any]) -> Own:
        """Return what the arguments say, by default where there is none; raises `InputError`."""
        ...

    def write(self, own: Own) -> dict[str, Any]:
        """Return what `read` reads."""
        del own
        return {}

    def read_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as their options say them; raises `InputError` that names the option."""
        del options
        return {}

    def reads(self, own: Own) -> tuple[ObjectKind, ...]:
        """Return the kinds beside those of a snapshot that plans with these arguments read, of `may_read`."""
        del own
        return ()

    def rules(self, own: Own) -> tuple[Rule, ...]:
        """Return the rules that the arguments make."""
        del own
        return ()

    def findings(
        self, args: GoalArguments, policy: DeschedulerPolicy, planner: PlannerSettings, *, is_repeated: bool
    ) -> Iterator[ArgumentWarning]:
        """Yield what will not work well; `is_repeated` says whether a schedule runs the policy again and again."""
        del args, policy, planner, is_repeated
        yield from ()

    def not_known(self, own: Own, snapshot: Snapshot | None) -> Iterator[ArgumentWarning]:
        """Yield what the arguments leave to objects of a cluster that a snapshot does not have; None: no snapshot."""
        del own, snapshot
        yield from ()


class Goal(ArgumentGroup[Own], Generic[Own, Asked]):
    """One thing that plans can be for, with the strategy that pursues it."""

    name: ClassVar[str]
    """The value of the argument `strategy`, and what plans record as theirs."""

    is_offered: ClassVar[bool] = True
    """Whether a policy can ask for it by the argument `strategy`."""

    frees_nodes: ClassVar[bool] = False
    """Whether it is for nodes without pods: they are awaited, marked as freed, and asked for again after a setback."""

    empties_nodes: ClassVar[bool] = True
    """Whether a node keeps all its pods if one of them has to stay, and should stay empty once all have left."""

    untied_pods_await_waves: ClassVar[bool] = True
    """Whether pods that no rule of their own ties to other pods go in the wave that is planned, and not before."""

    heeds_min_freed_nodes: ClassVar[bool] = True
    """Whether a plan that frees too few nodes is not begun."""

    whole_nodes: ClassVar[bool | None] = True
    """Whether nodes are emptied whole; None where the argument `wholeNodes` says that."""

    protection_percent: ClassVar[int] = 100
    """The default of `protectionThresholds`."""

    counted: ClassVar[str] = "freed nodes"
    """What the proven quality of its plans counts."""

    shared_options: ClassVar[tuple[str, ...]] = ()
    """Parameters of options for arguments that all goals have and only this one goes by."""

    @property
    def option(self) -> str:
        """Return the name as the command line has it."""
        return _WORD_START.sub("-", self.name).lower()

    # What policies and commands ask for.

    def check(self, args: GoalArguments) -> None:
        """Raise `InputError` for arguments that contradict one another."""

    def typed(self, own: Own) -> Own:
        """Return own arguments that were typed just now: what they name has to exist."""
        return own

    def named_resources(self, args: GoalArguments) -> dict[str, str]:
        """Return each field that names a resource which this goal goes by, with the resource."""
        del args
        return {}

    # The strategy.

    @abstractmethod
    def request(self, args: GoalArguments) -> Asked:
        """Return what the strategy is asked for."""
        ...

    @abstractmethod
    def strategy(self, asked: Asked, deadline: Deadline) -> Strategy:
        """Return the strategy that chooses the moves; raises `InputError` if what it needs is not installed."""
        ...

    # What lint and the restrictions of a plan say.

    def frees_whole_nodes(self, objective: Objective) -> bool:
        """Return whether a plan for this objective leaves nodes alone that it cannot free."""
        del objective
        return False

    def unknown_names(self, args: GoalArguments, snapshot: Snapshot) -> Iterator[UnknownName]:
        """Yield what own arguments name and the cluster does not have."""
        del args, snapshot
        yield from ()

    def limits(self, args: GoalArguments) -> Iterator[GoalLimit[Asked]]:
        """Yield the arguments without which plans might do more."""
        del args
        yield from ()

    # What a plan is worth, and how that is said.

    @abstractmethod
    def worth(self, plan: Plan) -> Merit:
        """Return what a plan brings, as numbers by which plans for the same are compared."""
        ...

    @abstractmethod
    def sentence(self, plan: Plan) -> str:
        """Return what a plan does."""
        ...

    def advantage(self, better: Plan, plan: Plan) -> str:
        """Return what a plan that is worth more brings, in words that a condition follows."""
        return pods_moved_instead(better, plan)

    def judgement(self, plan: Plan) -> str:
        """Return how good a plan is; "" if nothing is known or asked."""
        return "" if plan.quality is None else judge(plan.quality, counted=self.counted)

    def figures(self, plan: Plan) -> Iterator[Figure]:
        """Yield the figures that a report begins with."""
        del plan
        yield from ()

    def bound_figures(self, plan: Plan) -> Iterator[Figure]:
        """Yield the figures about what any plan could reach."""
        if plan.quality is not None:
            yield from bound_figures(plan.quality, self.counted)

    def unused_rows(self, plan: Plan) -> Iterator[tuple[str, tuple[str, str]]]:
        """Yield shares of what is free that are of no use, before and after a plan, each with its label."""
        del plan
        yield from ()
