"""Whether a target will soon end the pod that comes to it: asked before an eviction, and before a move has landed."""

from berth_core import Node, PodSpec
from berth_core.selectors import ending_taint
from berth_descheduler.planner.autoscalers.nodes import closing_refusal
from berth_kube import NODES, ListSource, NotFoundError


def why_target_ends_pod(source: ListSource, target: str, spec: PodSpec) -> str:
    """Return why a pod would not stay on a node, "" if it would; raises `BerthError` where that is not known.

    A node that is about to go still takes pods that tolerate its taints, but does not stay until they are Ready.
    """
    try:
        node = source.get(NODES, target, type=Node)
    except NotFoundError:
        return f"node {target} is gone"
    if (closing := closing_refusal(node)) is not None:
        return f"{target}: {closing.message}"
    ending = ending_taint(spec.tolerations, node.taints)
    if ending is None:
        return ""
    taint, seconds = ending
    return f"{target}: taint {taint.key}={taint.value}:{taint.effect} ends the pod after {seconds} s"
