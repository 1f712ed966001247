"""Whether an Indexed Job's `successPolicy` is met, as its controller has it (pkg/controller/job, `matchSuccessPolicy`).

The Job then gets the condition `SuccessCriteriaMet` and ends its other pods. Between the last success and the condition
lies the time in which the controller removes the finalizer of the pod that has succeeded.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from berth_core import Pod, SuccessPolicyRule, Workload

_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_INDEXED: Final = "Indexed"
_MOST_DIGITS: Final = 10
"""The most digits of an index, which is below 2^31; a pod's annotation may have a number of any length."""


def is_met(job: Workload, pods: Sequence[Pod]) -> bool:
    """Return whether a Job has succeeded by its policy, counting its `pods` that have but are not counted yet."""
    policy = job.spec.success_policy
    if policy is None or job.spec.completion_mode != _INDEXED:
        return False
    completed = _merged((*_ranges(job.status.completed_indexes), *_succeeded(pods)))
    return any(_is_met(rule, completed) for rule in policy.rules)


def _is_met(rule: SuccessPolicyRule, completed: Sequence[range]) -> bool:
    """Return whether a rule is met: by all of its indexes, or by as many of them, or of all indexes, as it counts."""
    if rule.succeeded_indexes is None:
        return rule.succeeded_count is not None and sum(map(len, completed)) >= rule.succeeded_count
    indexes_asked = _merged(_ranges(rule.succeeded_indexes))
    wanted = sum(map(len, indexes_asked)) if rule.succeeded_count is None else rule.succeeded_count
    return wanted > 0 and _in_both(indexes_asked, completed) >= wanted


def _ranges(text: str) -> Iterator[range]:
    """Yield the indexes in a text such as `0,3-5`, without parts that are no index."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if _is_index(first) and _is_index(last or first):
            yield range(int(first), int(last or first) + 1)


def _succeeded(pods: Sequence[Pod]) -> Iterator[range]:
    for pod in pods:
        index = pod.metadata.annotations.get(_COMPLETION_INDEX, "")
        if pod.status.phase == "Succeeded" and _is_index(index):
            yield range(int(index), int(index) + 1)


def _is_index(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def _merged(ranges: Iterable[range]) -> list[range]:
    """Return the same indexes in ranges that do not overlap, in order; a text may name any number of them."""
    merged: list[range] = []
    for indexes in sorted(ranges, key=lambda indexes: indexes.start):
        if merged and indexes.start <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, indexes.stop))
        else:
            merged.append(indexes)
    return merged


def _in_both(wanted: Sequence[range], completed: Sequence[range]) -> int:
    """Return how many indexes are in both sequences, each of which is merged."""
    number, here, there = 0, 0, 0
    while here < len(wanted) and there < len(completed):
        start, stop = max(wanted[here].start, completed[there].start), min(wanted[here].stop, completed[there].stop)
        number += max(0, stop - start)
        if wanted[here].stop <= completed[there].stop:
            here += 1
        else:
            there += 1
    return number
