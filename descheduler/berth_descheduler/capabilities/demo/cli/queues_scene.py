"""The scene of `berth demo --scene queues`: a part of the cluster that is guaranteed to a team."""

from typing import Final

from berth_core import QUEUE_API_VERSION, QUEUE_KIND, GatedQueue, QueueCondition
from berth_descheduler.capabilities.demo.cli.stage import Scene, Stage, number_names
from berth_kube import QUEUES

_WEB: Final = "web"
_ML: Final = "ml"
_GUARANTEED: Final = "25%"
_PART: Final = {"cpu": "1", "memory": "16Gi"}
_PARTS: Final = 8
"""So many fill both nodes."""


def play_queues(stage: Stage) -> str:
    """A queue keeps its guarantee though another one asks for everything."""
    for queue_name, spec in ((_WEB, {}), (_ML, {"guarantee": {"resource": {"memory": _GUARANTEED}}})):
        stage.make_namespace(queue_name)
        selector = {"matchLabels": {"kubernetes.io/metadata.name": queue_name}}
        manifest_head = {"apiVersion": QUEUE_API_VERSION, "kind": QUEUE_KIND, "metadata": {"name": queue_name}}
        stage.client.create(QUEUES, {**manifest_head, "spec": {"namespaceSelector": selector, **spec}})
    stage.wait("both queues are enforced", lambda: all(_is_enforced(stage, name) for name in (_WEB, _ML)))
    stage.say(f"queue {_ML} is guaranteed {_GUARANTEED} of the memory, queue {_WEB} nothing")
    for queue_name in (_WEB, _ML):
        stage.wait_for_gate(queue_name, _PART)
    quota = _PARTS // 4
    stage.create_pods(_WEB, number_names("web-", _PARTS), _PART)
    stage.wait(
        f"all but {quota} of {_PARTS} run",
        lambda: len(stage.running(_WEB, "web-")) == _PARTS - quota,
    )
    stage.wait("the queue says what waits", lambda: _queue(stage, _WEB).status.waiting == quota)
    stage.say(f"{_WEB} asks for everything: {_PARTS - quota} pods run, and {quota} wait behind the gate")
    stage.create_pods(_ML, number_names("ml-", quota), _PART)
    seconds = stage.wait(f"the pods of {_ML} run", lambda: len(stage.running(_ML, "ml-")) == quota)
    stage.require(f"{quota} of {_WEB} wait", len(stage.running(_WEB, "web-")) == _PARTS - quota)
    stage.say(f"{quota} pods of {_ML} come and run {seconds:.1f} s later")
    stage.end_pods(_ML, number_names("ml-", quota))
    stage.client.merge_patch(QUEUES, _ML, {"spec": {"suspend": True}})
    stage.wait(f"all of {_WEB} run", lambda: len(stage.running(_WEB, "web-")) == _PARTS)
    return (
        f"{quota} pods of queue {_ML} ran {seconds:.1f} s after they were created, on what is guaranteed to it, though "
        f"queue {_WEB} had asked for all; once {_ML} was switched off, the rest of {_WEB} ran, too."
    )


def _queue(stage: Stage, name: str) -> GatedQueue:
    return GatedQueue.read(stage.client.get(QUEUES, name))


def _is_enforced(stage: Stage, name: str) -> bool:
    condition = _queue(stage, name).condition(QueueCondition.ENFORCED)
    return condition is not None and condition.status == "True"


QUEUES_SCENE: Final = Scene("a part of the cluster that is guaranteed to a team: Queues", 2, play_queues)
