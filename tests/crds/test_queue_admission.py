"""What the API server says to a Queue, before Berth sees it."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from berth_core import QUEUE_API_VERSION, QUEUE_KIND, Fence, GatedQueue, LabelSelector, LabelSelectorRequirement
from berth_core.gated_queues import Enforcement, GatedQueueSpec, HeldGuarantee
from berth_core.queues import QueueGuarantee
from plain_api import PlainApi

pytestmark = pytest.mark.cluster

QUEUES: Final = "apis/berth.volcano.sh/v1alpha1/queues"

Store = Callable[[str, dict[str, Any]], str]

SPEC: Final = GatedQueueSpec(
    weight=3,
    capability={"cpu": "8", "memory": "50%", "example.com/gpu": 1},
    guarantee=QueueGuarantee(resource={"memory": "12.5%"}),
    deserved={"cpu": "4"},
    reclaimable=False,
    namespace_selector=LabelSelector(
        match_labels={"team": "ml"},
        match_expressions=(LabelSelectorRequirement(key="stage", operator="In", values=("test",)),),
    ),
    enforcement=Enforcement.HELD,
    held=HeldGuarantee(
        shape={"cpu": "500m", "memory": "1.5Gi", "example.com/gpu": 1}, namespace="ml", fence=Fence.NODE
    ),
    suspend=True,
)


def queue(**spec: object) -> dict[str, Any]:
    return {"apiVersion": QUEUE_API_VERSION, "kind": QUEUE_KIND, "spec": spec}


def test_a_queue_is_kept_as_it_was_given(api: PlainApi, stored: Store) -> None:
    body = queue(**msgspec.to_builtins(SPEC))
    assert GatedQueue.read(api.get(stored(QUEUES, body)).body).spec == SPEC


def test_a_queue_of_volcanos_fields_says_what_it_means(api: PlainApi, stored: Store) -> None:
    given = {"reclaimable": True, "weight": 1, "guarantee": {"resource": {"cpu": 2, "memory": "4G"}}}
    assert api.get(stored(QUEUES, queue(**given))).body["spec"] == {
        **given,
        "enforcement": "Gated",
        "suspend": False,
    }


REFUSED: Final = {
    "a negative amount": {"capability": {"cpu": "-1"}},
    "a text": {"guarantee": {"resource": {"memory": "much"}}},
    "more than all": {"guarantee": {"resource": {"memory": "101%"}}},
    "no weight": {"weight": 0},
    "held without a shape": {"enforcement": "Held"},
    "held with an empty shape": {"enforcement": "Held", "held": {"shape": {}}},
    "a shape of nothing": {"held": {"shape": {"memory": "0"}}},
    "a shape of zero point nothing": {"held": {"shape": {"memory": "0.00Gi"}}},
    "a shape of the number zero": {"held": {"shape": {"memory": 0}}},
    "a shape in percent": {"held": {"shape": {"memory": "10%"}}},
    "a shape and a template": {"held": {"shape": {"cpu": "1"}, "template": {"spec": {}}}},
    "another enforcement": {"enforcement": "Softly"},
    "a selector without values": {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
}


@pytest.mark.parametrize("spec", REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused(api: PlainApi, spec: dict[str, Any]) -> None:
    answer = api.create(QUEUES, queue(**spec) | {"metadata": {"name": "bad"}}, dry_run=True)
    assert answer.code == 422
