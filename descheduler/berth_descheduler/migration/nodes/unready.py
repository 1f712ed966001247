"""Asks which nodes are not Ready, where a pod on one takes its time to become Ready or to end."""

from collections.abc import Collection
from functools import partial

from berth_core import BerthError, Node
from berth_descheduler.migration.background_calls import BackgroundCalls
from berth_kube import NODES, KubeClient, NotFoundError


class NodeQuestions:
    """Asks about each node at most once in `gap_seconds`, as long as it matters."""

    def __init__(self, client: KubeClient, calls: BackgroundCalls, gap_seconds: float) -> None:
        self._client, self._calls, self._gap_seconds = client, calls, gap_seconds
        self._asked_at: dict[str, float] = {}
        self._problems: dict[str, str] = {}

    def ask(self, names: Collection[str], now: float) -> None:
        """Ask about the nodes that matter now, and forget what is known of others."""
        self._asked_at = {
            known_node: asked_at for known_node, asked_at in self._asked_at.items() if known_node in names
        }
        self._problems = {known_node: problem for known_node, problem in self._problems.items() if known_node in names}
        for node_name in sorted(names):
            asked_at = self._asked_at.get(node_name)
            if asked_at is None or now - asked_at >= self._gap_seconds:
                self._asked_at[node_name] = now
                self._calls.make(partial(why_not_ready, self._client, node_name), partial(self._note, node_name))

    def problem_of(self, name: str) -> str:
        """Return why a node is not Ready, "" if it is or that is not known."""
        return self._problems.get(name, "")

    def _note(self, name: str, problem: str | None) -> None:
        # The answer may come after the last pod that mattered there has gone.
        if problem is not None and name in self._asked_at:
            self._problems[name] = problem


def why_not_ready(client: KubeClient, name: str) -> str | None:
    """Return why a node is not Ready, "" if it is; None where it cannot be asked."""
    try:
        node = client.get(NODES, name, type=Node)
    except NotFoundError:
        return f"node {name} is gone"
    except BerthError:
        return None
    if node.ready:
        return ""
    conditions = (condition for condition in node.status.conditions if condition.type == "Ready")
    cause = next((": ".join(filter(None, (condition.reason, condition.message))) for condition in conditions), "")
    return f"node {name} is not Ready{f': {cause}' if cause else ''}"
