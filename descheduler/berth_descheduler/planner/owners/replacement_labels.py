"""Labels that make the replacement another pod than the one it replaces, to rules that select pods.

The template may give it labels that the pod lacks or has with other values. That counts where a required affinity, a
spread or a disruption budget anywhere selects by such a label: which pods may stand beside it, and which may go,
changes with it. Labels that only the pod has do not count: operators and people put them on pods, and do so again.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

from berth_core import TEMPLATE_HASH_LABEL, LabelSelector, Pod, PodTemplate, Snapshot
from berth_core.objects.scheduling import SPREAD_HARD
from berth_descheduler.planner.owners.statefulsets import REVISION_LABEL

_LABELS_OF_CONTROLLERS: Final = frozenset({TEMPLATE_HASH_LABEL, REVISION_LABEL})


class ReplacementLabels:
    """Answers for the pods of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def difference(self, pod: Pod, template: PodTemplate) -> str:
        """Return which labels that rules select by differ in the replacement, "" for none."""
        changed = template.metadata.labels.items() - pod.metadata.labels.items()
        if not changed:
            return ""
        selected = sorted(
            f"{key}={label_value}"
            for key, label_value in changed
            if key not in _LABELS_OF_CONTROLLERS and key in self._selected_keys
        )
        return f"has the label {', '.join(selected)}, by which pods are selected" if selected else ""

    @cached_property
    def _selected_keys(self) -> frozenset[str]:
        budgets = (budget.spec.selector for budget in self._snapshot.disruption_budgets)
        of_budgets = (key for selector in budgets for key in _keys_of(selector))
        return frozenset((*of_budgets, *(key for pod in self._snapshot.pods for key in _keys_of_pod(pod))))


def _keys_of_pod(pod: Pod) -> Iterator[str]:
    """Yield the keys of labels by which a pod's required terms select pods."""
    for term in (*pod.spec.required_affinity, *pod.spec.required_anti_affinity):
        yield from (*_keys_of(term.label_selector), *term.match_label_keys, *term.mismatch_label_keys)
    for constraint in pod.spec.topology_spread_constraints:
        if constraint.when_unsatisfiable == SPREAD_HARD:
            yield from (*_keys_of(constraint.label_selector), *constraint.match_label_keys)


def _keys_of(selector: LabelSelector | None) -> Iterable[str]:
    if selector is None:
        return ()
    return (*selector.match_labels, *(expression.key for expression in selector.match_expressions))
