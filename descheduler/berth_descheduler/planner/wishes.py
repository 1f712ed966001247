"""Makes a plan as its rules wish: pods come to nodes of a low rank first, and these nodes are emptied last.

Which nodes are emptied decides more than the order in which the others are filled, and a strategy does not know how far
it can go there without bringing less. So it is asked several times: without wishes, for what a plan can bring at all,
and then with nodes that keep their pods, those of the lowest ranks, at first as many as there are. Every strategy keeps
to that, for a node that gives no pod is nothing new to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, TypeAlias

from berth_core import Deadline, is_over
from berth_descheduler.framework.refusals import RefusalReason, Refused, RefusedKind
from berth_descheduler.planner.fragmentation import measure
from berth_descheduler.planner.problem import SPARED, Problem, Proposal, Wishes
from berth_descheduler.planner.quality import Quality
from berth_descheduler.planner.simulation import NodeIndex, State

Propose: TypeAlias = Callable[[Problem], tuple[Proposal, State]]

_MOST_TRIED: Final = 6
"""So often a strategy is asked with nodes that keep their pods."""

_MORE_MOVES: Final = Fraction(1, 4)
"""The part of its moves that a plan may make beyond them for wishes; a wish is not worth any number of evictions."""

_FEW_MOVES: Final = 3
"""It may always make so many more."""

_BOUNDED: Final = "no plan in which the nodes that pods are wished on keep theirs does more"

_IGNORED: Final = Wishes(are_heeded=False)


def propose_as_wished(problem: Problem, propose: Propose, deadline: Deadline) -> tuple[Proposal, State]:
    """Return, of the proposals that bring as much as any that was made, the one closest to the rules' wishes."""
    if not problem.ranks_targets:
        return propose(problem)
    plain = propose(problem.wishing(_IGNORED))
    if not plain[0].steps:
        return plain
    best, wanted_merit = plain, ProposalMerit.of(problem, plain[0])
    in_order = _lowest_rank_first(problem)
    # So many nodes can keep their pods, -1 where even the order of filling costs something; so many cannot.
    spared, too_many = -1, len(in_order) + 1
    nodes_tried = len(in_order)
    # Bisection, although sparing fewer nodes need not bring more: what is returned was tried, and is as good as the
    # plain plan.
    for _ in range(_MOST_TRIED):
        if is_over(deadline) or too_many - spared <= 1:
            break
        proposal, state = propose(problem.wishing(Wishes(spared=frozenset(in_order[:nodes_tried]))))
        if ProposalMerit.of(problem, proposal).is_as_good_as(wanted_merit):
            proposal = _with_reasons_of(plain[0], with_bounds_of(plain[0], proposal, _BOUNDED))
            best, spared = (proposal, state), nodes_tried
        else:
            too_many = nodes_tried
        nodes_tried = (spared + too_many) // 2
    return best


def _lowest_rank_first(problem: Problem) -> list[NodeIndex]:
    """Return the nodes that may be spared, those of the lowest rank first, and of these those with the most pods.

    Nodes of the highest rank are not among them: if all kept their pods, nothing would move.
    """
    ranks = problem.target_ranks
    highest = max(ranks)
    nodes = (NodeIndex(node) for node in range(len(problem.cluster.snapshot.nodes)))
    lower = [node for node in nodes if ranks[node] < highest and problem.pods_to_move(node)]
    return sorted(lower, key=lambda node: (ranks[node], -len(problem.pods_to_move(node)), node))


@dataclass(frozen=True, slots=True)
class ProposalMerit:
    """What a proposal brings, whatever its goal is, and what that takes."""

    weight: int
    """The weight of the nodes that are freed, less that of the nodes that are filled."""

    empty_nodes: int
    fitted: int
    """Pods that find room."""

    lowered: int | Fraction
    """By how much the fragmented part of what is free shrinks."""

    named: int
    """Pods that move because a plugin names them."""

    waits: int
    moves: int
    evictions: int
    is_late: bool
    """Whether the time limit ended the search."""

    @classmethod
    def of(cls, problem: Problem, proposal: Proposal) -> "ProposalMerit":
        steps = (*proposal.steps, *proposal.evictions)
        quality, change = proposal.quality, proposal.fragmentation
        weight = quality.weight if quality is not None else None
        is_late = quality is not None and quality.out_of_time
        empty_nodes = set(measure(problem, steps).empty_nodes)
        return cls(
            weight=0 if weight is None else weight.reached,
            empty_nodes=len(empty_nodes - {problem.cluster.node_name(node) for node in problem.no_gain}),
            fitted=sum(room.fitted for room in proposal.room),
            lowered=0 if change is None else change.fragmented_before - change.fragmented_after,
            named=len(proposal.reasons),
            waits=len(proposal.waits),
            moves=len(proposal.steps),
            evictions=len(proposal.evictions),
            is_late=is_late,
        )

    @property
    def brings(self) -> tuple[int | Fraction, ...]:
        """Return the numbers of which more is better."""
        return self.weight, self.empty_nodes, self.fitted, self.lowered, self.named, self.waits

    def is_as_good_as(self, other: "ProposalMerit") -> bool:
        """Return whether nothing of what another proposal brings is lost, for few moves more."""
        further_moves = max(_FEW_MOVES, int(other.moves * _MORE_MOVES))
        return (
            all(own_value >= other_value for own_value, other_value in zip(self.brings, other.brings, strict=True))
            and self.moves <= other.moves + further_moves
            and self.evictions <= other.evictions
            and self.is_late <= other.is_late
        )


def with_bounds_of(plain: Proposal, proposal: Proposal, text: str) -> Proposal:
    """Return a proposal with what is proven of all plans; its own bounds hold while some pods stay.

    `text` replaces the reasons that say that no plan does more, where that is proven of plans with these pods only.
    """
    plain_quality, quality_found = plain.quality, proposal.quality
    if plain_quality is None or quality_found is None:
        return proposal
    fewest_moves = min(plain_quality.fewest_moves, quality_found.moves)
    quality = quality_found.bounded_by(plain_quality, fewest_moves=fewest_moves)
    return replace(proposal, quality=quality, refused=_without_claims(proposal.refused, quality, text))


def _with_reasons_of(plain: Proposal, proposal: Proposal) -> Proposal:
    """Return a proposal that says why spared nodes would keep their pods anyway, where they would."""
    is_node = RefusedKind.NODE
    spared = {
        refused.node for refused in proposal.refused if refused.kind is is_node and refused.message == SPARED.message
    }
    kept_anyway = {refused.node for refused in plain.refused if refused.kind is is_node and refused.node in spared}
    others = (refused for refused in proposal.refused if refused.node not in kept_anyway)
    reasons = (refused for refused in plain.refused if refused.node in kept_anyway)
    return replace(proposal, refused=tuple(sorted((*others, *reasons))))


def _without_claims(refused: Sequence[Refused], quality: Quality, text: str) -> tuple[Refused, ...]:
    """Return refusals of which none says that no plan does more where that is not proven."""
    if quality.reaches_bound:
        return tuple(refused)
    return tuple(
        replace(refusal, reason=RefusalReason.NOT_NEEDED, message=text)
        if refusal.reason is RefusalReason.BOUND_REACHED
        else refusal
        for refusal in refused
    )
