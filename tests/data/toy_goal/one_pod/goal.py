"""A goal as others would add one: its strategy, its argument and its words."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from berth_core import Deadline, DeschedulerPolicy, Pod, Snapshot
from berth_descheduler.planner import NodeIndex, Plan, PlannerSettings, PodIndex, Problem, Proposal, State, Strategy
from berth_descheduler.planner.goal import ArgumentWarning, Goal, GoalArguments, GoalOption, Merit
from berth_descheduler.planner.sentences import Figure


class OnePod:
    """Moves the first pod of a namespace that may move and fits elsewhere."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        return tuple(map(NodeIndex, range(len(problem.cluster.nodes))))

    def waiting_pods(self, _snapshot: Snapshot) -> tuple[Pod, ...]:
        return ()

    def propose(self, problem: Problem, state: State) -> Proposal:
        for pod, placed in enumerate(problem.cluster.pods):
            if placed.pod.metadata.namespace != self._namespace or PodIndex(pod) in problem.pod_refusals:
                continue
            for target in map(NodeIndex, range(len(problem.cluster.nodes))):
                if target != placed.node and state.refusal(PodIndex(pod), target) is None:
                    state.move(PodIndex(pod), target)
                    return Proposal(state.steps, ())
        return Proposal((), ())


class OnePodGoal(Goal[str, str]):
    """Moves one pod."""

    name: ClassVar[str] = "OnePod"
    empties_nodes: ClassVar[bool] = False
    whole_nodes: ClassVar[bool | None] = False
    arguments: ClassVar[Mapping[str, str]] = {"space": "`OnePod`: the namespace of the pod; `default` by default."}
    options: ClassVar[tuple[GoalOption, ...]] = (
        GoalOption("--space", "NAME", "one-pod: the namespace of the pod.", fields=("space",)),
    )

    def read(self, raw: Mapping[str, Any]) -> str:
        return str(raw.get("space") or "default")

    def write(self, own: str) -> dict[str, Any]:
        return {"space": own}

    def read_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"space": options["space"]}

    def request(self, args: GoalArguments) -> str:
        return str(args.own)

    def strategy(self, asked: str, deadline: Deadline) -> Strategy:
        del deadline
        return OnePod(asked)

    def findings(
        self, args: GoalArguments, policy: DeschedulerPolicy, planner: PlannerSettings, *, is_repeated: bool
    ) -> Iterator[ArgumentWarning]:
        del policy, planner, is_repeated
        yield ArgumentWarning("space", f"only one pod of {args.own} moves in each run")

    def worth(self, plan: Plan) -> Merit:
        return (len(plan.moves),)

    def sentence(self, plan: Plan) -> str:
        return f"One pod moves: {plan.moves[0].pod}." if plan.moves else "No pod moves."

    def figures(self, plan: Plan) -> Iterator[Figure]:
        yield Figure("pods that moved by a toy", str(len(plan.moves)))
