"""Reports on the room that a plan makes: for what and on which nodes, and why there is not more."""

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from berth_core import PODS, Pod, effective_requests
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused
from berth_descheduler.planner import NodeIndex, PodIndex, Problem, Quality, RoomMade, State
from berth_descheduler.planner.explanations import Blockers, NodeRefusalSummary
from berth_descheduler.planner.pending_pods import SHAPE_NAMESPACE, GangOf, gang_of
from berth_descheduler.planner.problem import source_refusal
from berth_descheduler.planner.rooms import WaitingPod
from berth_descheduler.planner.solver import Ints, PackingModel, Want

Unused = tuple[tuple[str, Fraction], ...]


class RoomReports:
    """Reports on the wants of one plan: made before the moves, asked after them."""

    def __init__(
        self, problem: Problem, state: State, packing: PackingModel, wants: Sequence[Want], gangs: GangOf = gang_of
    ) -> None:
        self._gang_of = gangs
        self._problem = problem
        self._state = state
        self._packing = packing
        self._wants = tuple(wants)
        # Measured here, since the state is that of the snapshot only until the moves are made.
        self._before = [self._measure(want) for want in wants]
        self._blockers = Blockers(state)

    def made(self, places: Sequence[Sequence[NodeIndex]]) -> tuple[RoomMade, ...]:
        """Return what became of each want."""
        return tuple(
            self._made(want, want_places, fits_before)
            for want, want_places, fits_before in zip(self._wants, places, self._before, strict=True)
        )

    def why_not_more(
        self, room: Sequence[RoomMade], quality: Quality, moves_needed: int | None = None, *, limited: bool = False
    ) -> tuple[Refused, ...]:
        """Return why the wants that do not fit have no room.

        Says of each node, too, why it has no room for the first such want. `moves_needed`: with so many moves all would
        fit; None if that is not known. `limited`: what is proven holds within the limit on moves only.
        """
        unfitted = [
            (want, room_made)
            for want, room_made in zip(self._wants, room, strict=True)
            if room_made.wanted is None or room_made.fitted < room_made.wanted
        ]
        proof = quality, moves_needed, limited
        refusals = [self._of_want(want, room_made, proof) for want, room_made in unfitted]
        return tuple(sorted((*refusals, *(self._of_nodes(unfitted[0][0]) if unfitted else ()))))

    def _made(self, want: Want, places: Sequence[NodeIndex], before: tuple[int, Unused]) -> RoomMade:
        fits_before, unused_before = before
        fits_after, unused_after = self._measure(want)
        pods = [self._problem.cluster.pods[pod].pod for pod in want.pods]
        gang = self._gang_of(pods[0])
        return RoomMade(
            name=want.name,
            wanted=want.count,
            fitted=len(places),
            fits_before=fits_before,
            fits_after=fits_after,
            nodes=tuple(sorted(self._problem.cluster.node_name(node) for node in places)),
            unused_before=unused_before,
            unused_after=unused_after,
            pods=tuple(_waiting(pod) for pod in pods if not _is_shape(pod)),
            gang=gang[1] if gang else "",
            requests=tuple(effective_requests(pods[0].spec).to_quantities().items()) if _is_shape(pods[0]) else (),
        )

    def _measure(self, want: Want) -> tuple[int, Unused]:
        """Return how many pods of a want alone fit now, and which part of what is free they cannot use."""
        needs = self._problem.cluster.requests[self._class_of(want)]
        nodes = np.flatnonzero(self._packing.allowed(want.kind) & self._packing.takes)
        free = np.array([self._state.free[node] for node in nodes], dtype=np.int64).reshape(len(nodes), len(needs))
        # Less than nothing is free where allocatable has shrunk under its pods. The kubelet lowers it, for one, by each
        # device that fails, and the pods stay (test/e2e_node/device_plugin_failures_test.go).
        fits = self._fits(want, nodes, np.maximum(free, 0), np.array(needs, dtype=np.int64))
        unused = []
        for name, column in self._problem.cluster.column.items():
            total = int(np.maximum(free[:, column], 0).sum())
            if name != PODS and needs[column] and total:
                unused.append((name, 1 - Fraction(fits * needs[column], total)))
        return fits, tuple(sorted(unused))

    def _fits(self, want: Want, nodes: Ints, free: Ints, needs: Ints) -> int:
        # How many fit beside one another depends on where each goes, so for these it is only asked whether one does.
        if self._packing.dependent[want.kind]:
            pod = want.pods[0]
            return int(any(self._state.refusal(pod, NodeIndex(int(node))) is None for node in nodes))
        requested = np.flatnonzero(needs)
        return int((free[:, requested] // needs[requested]).min(axis=1).sum()) if len(nodes) else 0

    def _class_of(self, want: Want) -> int:
        return self._problem.cluster.pods[want.pods[0]].class_index

    def _of_want(self, want: Want, made: RoomMade, proof: tuple[Quality, int | None, bool]) -> Refused:
        not_fitted = "more of it" if made.wanted is None else f"{made.wanted - made.fitted} more of it"
        refusal = self._why_no_more(not_fitted, *proof)
        meta = self._problem.cluster.pods[want.pods[0]].pod.metadata
        namespace = "" if meta.namespace == SHAPE_NAMESPACE else meta.namespace
        return Refused.of_pod("", namespace, meta.name, refusal)

    def _why_no_more(self, more: str, quality: Quality, moves_needed: int | None, limited: bool) -> Refusal:  # noqa: FBT001 - a part of the proof
        """Return what ended the search for more room: proofs before limits, the limit on moves before the room."""
        limit = self._problem.settings.limits.max_moves
        if quality.proven_optimal and not limited:
            return Refusal(RefusalReason.BOUND_REACHED, f"no plan makes room for {more}")
        if limit is not None and moves_needed is not None:
            return Refusal(RefusalReason.MOVE_LIMIT, f"{moves_needed} moves would make room and {limit} are allowed")
        if quality.proven_optimal:
            return Refusal(RefusalReason.MOVE_LIMIT, f"no plan of at most {limit} moves makes room for {more}")
        if quality.out_of_time:
            return Refusal(RefusalReason.TIME_LIMIT, f"the time limit ended the search for room for {more}")
        if limit is not None and quality.moves >= limit:
            return Refusal(RefusalReason.MOVE_LIMIT, f"the {limit} moves that are allowed make no room for {more}")
        text = f"no plan was found that makes room for {more}; a bound does not exclude one"
        return Refusal(RefusalReason.NO_ROOM_TOGETHER, text)

    def _of_nodes(self, want: Want) -> Iterable[Refused]:
        for index, node in enumerate(self._problem.cluster.nodes):
            number = NodeIndex(index)
            if number != self._problem.cluster.waiting_node:
                yield Refused.of_node(node.metadata.name, self._why_no_room(want.pods[0], number))

    def _why_no_room(self, pod: PodIndex, node: NodeIndex) -> Refusal:
        """Return what keeps a pod from a node: first what no move changes, then pods that may not be moved."""
        refusal = self._state.refusal(pod, node)
        if refusal is None:
            return Refusal(RefusalReason.NO_ROOM_TOGETHER, "it fits here alone, but not beside all else that waits")
        if refusal.reason is not RefusalReason.INSUFFICIENT_RESOURCES:
            return self._blockers.name(refusal, pod, node)
        needs = self._problem.cluster.requests[self._problem.cluster.pods[pod].class_index]
        free = list(self._state.free[node])
        blockers = []
        for other_pod in self._problem.cluster.pods_on[node]:
            amounts = self._problem.cluster.requests[self._problem.cluster.pods[other_pod].class_index]
            if self._packing.pod_kind[other_pod] >= 0:
                free = [free_amount + pod_amount for free_amount, pod_amount in zip(free, amounts, strict=True)]
            else:
                blockers.append(other_pod)
        lacking_resources = [
            name for name, column in self._problem.cluster.column.items() if needs[column] > free[column]
        ]
        if not lacking_resources:
            return source_refusal(self._problem, node) or self._why_no_pod_leaves(node, refusal) or refusal
        return self._blocked(sorted(lacking_resources), blockers)

    def _why_no_pod_leaves(self, node: NodeIndex, lack: Refusal) -> Refusal | None:
        """Return which movable pod of a node other pods keep off every node with room, None if none is kept so.

        It names the first such pod, and the first pod whose term, place or port forbids the move.
        """
        for pod in self._problem.cluster.pods_on[node]:
            class_index = self._problem.cluster.pods[pod].class_index
            if self._packing.pod_kind[pod] < 0 or not self._state.depends_on_others(class_index):
                continue
            tying = NodeRefusalSummary(pod)
            for target in map(NodeIndex, np.flatnonzero(self._packing.takes).tolist()):
                if target == node or self._state.node_fit.refusal(class_index, target) is not None:
                    continue
                if not self._state.fits(class_index, target):
                    continue
                tie = self._state.refusal_by_others(pod, target)
                if tie is None:
                    break
                tying.count(target, tie)
            else:
                if tying:
                    key = self._problem.cluster.pods[pod].pod.key
                    summary = tying.summary(tying.in_words(), self._blockers)
                    holder = f", such as {summary.blocking_pod}" if summary.blocking_pod else ""
                    text = (
                        f"{lack.message} beside {key}, which no node with room for it takes: {summary.message}{holder}"
                    )
                    return Refusal(
                        RefusalReason.HOLDS_IMMOVABLE_PODS,
                        text,
                        constraint=summary.constraint,
                        resource=lack.resource,
                        blocking_pod=key,
                    )
        return None

    def _blocked(self, lacking: Sequence[str], blockers: Sequence[PodIndex]) -> Refusal:
        lacking_names = ", ".join(lacking)
        if not blockers:
            text = f"the node is too small: not enough {lacking_names}"
            return Refusal(RefusalReason.INSUFFICIENT_RESOURCES, text, resource=lacking[0])
        first_blocker = self._problem.cluster.pods[blockers[0]].pod.key
        blocker_refusal = self._problem.pod_refusals.get(blockers[0])
        text = f"not enough {lacking_names} beside pods that may not be moved, such as {first_blocker}"
        return Refusal(
            RefusalReason.HOLDS_IMMOVABLE_PODS,
            f"{text}: {blocker_refusal.message}" if blocker_refusal else text,
            constraint=blocker_refusal.reason if blocker_refusal else "",
            resource=lacking[0],
            blocking_pod=first_blocker,
        )


def _is_shape(pod: Pod) -> bool:
    return pod.metadata.namespace == SHAPE_NAMESPACE


def _waiting(pod: Pod) -> WaitingPod:
    return WaitingPod(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
