"""Binds plans to their object, by its uid, so that none is carried out again when it comes back from a backup.

A backup and `kubectl replace --force` keep a plan's spec and annotations, and lose its status: what had ended looks as
if it were about to begin, with its approval. The new object has another uid, while an annotation has the uid under
which the plan was published, begun or ended.
"""

from typing import Any

from berth_core import MigrationPlan
from berth_core.labels import PLAN_UID_ANNOTATION
from berth_kube import MIGRATION_PLANS, KubeClient, NotFoundError

CAME_BACK = "aborted: it came back from a backup or was replaced, so it is not carried out again: ask for a new plan"


def build_binding(plan: MigrationPlan, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a patch that binds a plan; changes of its spec go in the same write, so that none is approved unbound."""
    binding: dict[str, Any] = {"metadata": {"annotations": {PLAN_UID_ANNOTATION: plan.metadata.uid}}}
    return binding | ({"spec": spec} if spec else {})


def bind_plan(client: KubeClient, plan: MigrationPlan) -> None:
    """Bind a plan that is not bound yet, such as one written by hand; a plan that is gone needs nothing."""
    if PLAN_UID_ANNOTATION in plan.metadata.annotations:
        return
    try:
        client.merge_patch(MIGRATION_PLANS, plan.metadata.name, build_binding(plan))
    except NotFoundError:
        return
