"""The pods of a run stay in order from one list to the next, whatever comes and goes."""

import random

from hypothesis import strategies as st

from berth_core import FENCE_LABEL, STANDING_FENCE_LABEL, Pod
from berth_core.labels import LEADER_WORKER_SET_LABEL
from berth_descheduler.pods_in_order import KeptPods
from builders import pod
from properties import holds_for

SPACES = ("default", "shop")
LABELS = ({}, {}, {}, {FENCE_LABEL: "true"}, {STANDING_FENCE_LABEL: "open"}, {LEADER_WORKER_SET_LABEL: "group"})

pods = st.builds(
    lambda number, space, labels: pod(f"pod-{number:02d}", namespace=space, labels=labels),
    st.integers(0, 30),
    st.sampled_from(SPACES),
    st.sampled_from(LABELS),
)


@holds_for(st.lists(st.lists(pods, max_size=8, unique_by=lambda listed: listed.key), max_size=6), st.randoms())
def test_each_list_is_in_order_and_its_labels_are_known(changes: list[list[Pod]], draw: random.Random) -> None:
    kept = KeptPods()
    listed: dict[str, Pod] = {}
    for changed in changes:
        for key in [key for key in listed if draw.random() < 0.2]:
            del listed[key]
        listed |= {changed_pod.key: changed_pod for changed_pod in changed}
        in_any_order = [*listed.values()]
        draw.shuffle(in_any_order)
        ordered = kept.order(in_any_order)
        expected = sorted(listed.values(), key=lambda of: (of.metadata.namespace, of.metadata.name))
        assert [id(of) for of in ordered.pods] == [id(of) for of in expected]
        labels = {label for of in expected for label in of.metadata.labels}
        assert ordered.have_fence_labels == bool(labels & {FENCE_LABEL, STANDING_FENCE_LABEL})
        assert ordered.have_leaders == (LEADER_WORKER_SET_LABEL in labels)
