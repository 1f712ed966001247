"""Whether the controller of a pod makes it again, now, and as it is."""

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Final

from berth_core import VOLCANO_TASK_ANNOTATION, Pod, PodTemplate, Snapshot, VolcanoJob, Workload
from berth_core.workloads import DAEMON_SET_KIND, DEPLOYMENT_KIND, JOB_KIND, STATEFUL_SET_KIND
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.gangs import VOLCANO_JOB_KIND
from berth_descheduler.planner.owners.jobs import ending_refusals, failing_refusal
from berth_descheduler.planner.owners.leader_worker_sets import LeaderWorkerSets
from berth_descheduler.planner.owners.lifetimes import Lifetimes
from berth_descheduler.planner.owners.makers import (
    MAKERS,
    GroupKind,
    Makers,
    missing_refusal,
    shrinking_refusal,
    unmade_refusal,
)
from berth_descheduler.planner.owners.replacement_labels import ReplacementLabels
from berth_descheduler.planner.owners.statefulsets import (
    claims_refusal,
    first_unready,
    ordinal_of,
    ordinal_refusal,
    revision_of,
    takes_current_revision,
)
from berth_descheduler.planner.owners.success_policies import is_met
from berth_descheduler.planner.owners.templates import Templates

_SYNCED_PHASES: Final = frozenset({"", "Pending", "Running"})
"""Phases in which Volcano's controller makes the pods that are missing (pkg/controllers/job/state)."""


class Owners:
    """Answers for the pods of one snapshot, which may hold no more than one pod's owner and siblings.

    Without a time no deadline counts as near, and a pod that is Ready counts as available.
    """

    def __init__(
        self, snapshot: Snapshot, now: datetime | None = None, known_kinds: Collection[GroupKind] = ()
    ) -> None:
        """The snapshot has everything that matters of the `known_kinds`, even if it has no object of them."""
        self._now = now
        self._makers = Makers(snapshot, known_kinds)
        self._lifetimes = Lifetimes(snapshot)
        self._leader_worker_sets = LeaderWorkerSets(snapshot)
        self._volcano_jobs = {(job.metadata.namespace, job.metadata.name): job for job in snapshot.volcano_jobs}
        self._templates = Templates()
        self._labels = ReplacementLabels(snapshot)
        self._revisions = {
            (revision.metadata.namespace, revision.metadata.name): revision
            for revision in snapshot.controller_revisions
        }
        self._successful: dict[tuple[str, str], bool] = {}
        """By namespace and name of Jobs with a successPolicy, whether that is met."""
        self._first_unready: dict[str, tuple[int, str] | None] = {}
        """By the StatefulSet's uid, or else its namespace and name."""

    def refusals(self, pod: Pod) -> tuple[Refusal, ...]:
        """Return why no pod like this one would be made in its stead now."""
        maker = self._makers.maker(pod)
        refusals: tuple[Refusal, ...] = ()  # called for every pod, and mostly there is no refusal
        if (of_group := self._leader_worker_sets.refusal(pod, maker)) is not None:
            refusals = (of_group,)
        if not (pod.belongs_to_node or pod.counts_as_daemon):
            refusals = (*refusals, *self._of_maker(pod, maker))
        return (*refusals, *self._lifetimes.refusals(pod))

    def failure_refusals(self, pod: Pod) -> tuple[Refusal, ...]:
        """Return why evicting the pods of a Job, this one among them, could fail the Job."""
        owner = pod.controller
        if owner is None or owner.group_kind != JOB_KIND:
            return ()
        job = self._makers.maker(pod)
        if job is None and self._makers.knows(JOB_KIND):
            return ()  # the Job is refused as missing already
        refusal = failing_refusal(job, self._makers.active_pods(pod))
        return () if refusal is None else (refusal,)

    def orphan_refusals(self, pod: Pod) -> tuple[Refusal, ...]:
        """Return why no DaemonSet would give a node this daemon pod again, () where its DaemonSet would.

        The pod's node is as little free as one with a pod that nothing makes again.
        """
        owner = pod.controller
        if owner is None or owner.group_kind != DAEMON_SET_KIND or not self._makers.knows(DAEMON_SET_KIND):
            return ()
        daemon_set = self._makers.maker(pod)
        if daemon_set is None:
            return (missing_refusal(owner),)
        refusal = shrinking_refusal(pod, daemon_set, self._makers.active_pods(pod))
        return () if refusal is None else (refusal,)

    def _of_maker(self, pod: Pod, maker: Workload | None) -> Iterator[Refusal]:
        if maker is not None and maker.group_kind in MAKERS:
            yield from self._of_workload(pod, maker)
            return
        owner, unmade = pod.controller, unmade_refusal(pod)
        if owner is None or unmade is not None:
            yield from _if_any(unmade)
            return
        kind = owner.group_kind
        if kind == VOLCANO_JOB_KIND:
            job = self._volcano_jobs.get((pod.metadata.namespace, owner.name))
            if job is not None:
                yield from self._of_volcano_job(pod, job)
        elif self._makers.knows(kind):
            yield missing_refusal(owner)

    def _of_workload(self, pod: Pod, workload: Workload) -> Iterator[Refusal]:
        shrinking = shrinking_refusal(pod, workload, self._makers.active_pods(pod))
        yield from _if_any(shrinking or self._ending_above(workload))
        kind = workload.group_kind
        if kind == STATEFUL_SET_KIND:
            yield from self._of_stateful_set(pod, workload)
        elif kind == JOB_KIND and shrinking is None:
            has_succeeded = self._has_succeeded(pod, workload)
            yield from ending_refusals(workload, pod, self._makers.pods_of(pod), self._now, has_succeeded=has_succeeded)
        template = workload.spec.template
        if kind != STATEFUL_SET_KIND and template is not None and (differences := self._differences(pod, template)):
            origin = f"its {workload.kind} {workload.metadata.name} makes the replacement from its template"
            yield Refusal(RefusalReason.TEMPLATE_DIFFERS, f"{origin}, which {differences}")

    def _has_succeeded(self, pod: Pod, job: Workload) -> bool:
        if job.spec.success_policy is None:
            return False
        key = (job.metadata.namespace, job.metadata.name)
        if key not in self._successful:
            self._successful[key] = is_met(job, self._makers.pods_of(pod))
        return self._successful[key]

    def _ending_above(self, workload: Workload) -> Refusal | None:
        """Return why the garbage collector is about to delete a workload.

        Its owner is being deleted, or its Deployment is gone.
        """
        above = workload.controller
        if above is None:
            return None
        owner = self._makers.referred(workload.metadata.namespace, above)
        if owner is None:
            if above.group_kind != DEPLOYMENT_KIND or not self._makers.knows(DEPLOYMENT_KIND):
                return None
            text = f"the {above.kind} {above.name} of its {workload.kind} is not in the snapshot"
            return Refusal(RefusalReason.UNKNOWN_CONTROLLER, text)
        if owner.metadata.deletion_timestamp is None:
            return None
        text = f"the {owner.kind} {owner.metadata.name} of its {workload.kind} is being deleted"
        return Refusal(RefusalReason.CONTROLLER_SCALING_DOWN, text)

    def _of_stateful_set(self, pod: Pod, stateful_set: Workload) -> Iterator[Refusal]:
        if (of_ordinal := ordinal_refusal(stateful_set, pod)) is not None:
            yield of_ordinal
            return
        yield from self._of_order(pod, stateful_set)
        yield from self._of_revision(pod, stateful_set)

    def _of_order(self, pod: Pod, stateful_set: Workload) -> Iterator[Refusal]:
        name = stateful_set.metadata.name
        key = stateful_set.metadata.uid or f"{stateful_set.metadata.namespace}/{name}"
        if key not in self._first_unready:
            self._first_unready[key] = first_unready(stateful_set, self._makers.pods_of(pod), self._now)
        first, ordinal = self._first_unready[key], ordinal_of(stateful_set, pod)
        if first is not None and ordinal is not None and first[0] < ordinal:
            text = (
                f"{name}-{first[0]} {first[1]}, and its StatefulSet {name} makes no pod of a higher ordinal meanwhile"
            )
            yield Refusal(RefusalReason.LOWER_ORDINAL_NOT_READY, text)

    def _of_revision(self, pod: Pod, stateful_set: Workload) -> Iterator[Refusal]:
        """Yield what the StatefulSet's revision from which it makes the replacement asks for beyond the pod."""
        template = stateful_set.spec.template
        if template is None:
            return
        yield from _if_any(claims_refusal(stateful_set, template, pod))
        title, status, made_from = f"StatefulSet {stateful_set.metadata.name}", stateful_set.status, revision_of(pod)
        current, update = status.current_revision, status.update_revision
        if takes_current_revision(stateful_set, pod) and current != update:
            kept = self._kept_template(stateful_set)
            if kept is not None:
                if differences := self._differences(pod, kept, is_other_revision=made_from != current):
                    text = f"its {title} makes the replacement from revision {current}, which {differences}"
                    yield Refusal(RefusalReason.TEMPLATE_DIFFERS, text)
            elif made_from != current:
                revision = f"revision {current}, which is not known" if current else "a revision that is not known"
                text = f"its {title} makes the replacement from {revision}"
                yield Refusal(RefusalReason.TEMPLATE_DIFFERS, text)
            return  # the pod was made from it
        is_other_revision = bool(update and made_from and made_from != update)
        if differences := self._differences(pod, template, is_other_revision=is_other_revision):
            origin = f"its {title} makes the replacement from {f'revision {update}' if update else 'its template'}"
            yield Refusal(RefusalReason.TEMPLATE_DIFFERS, f"{origin}, which {differences}")

    def _kept_template(self, stateful_set: Workload) -> PodTemplate | None:
        """Return the template of a StatefulSet's current revision, None where it is not known."""
        meta = stateful_set.metadata
        revision = self._revisions.get((meta.namespace, stateful_set.status.current_revision))
        if revision is None or not any(owner.uid == meta.uid for owner in revision.metadata.owner_references):
            return None
        return revision.template

    def _differences(self, pod: Pod, template: PodTemplate, *, is_other_revision: bool = False) -> str:
        """Return how the replacement differs from the pod, "" for nothing that matters."""
        differences = self._templates.differences(pod, template, is_other_revision=is_other_revision)
        return ", ".join(filter(None, (differences, self._labels.difference(pod, template))))

    def _of_volcano_job(self, pod: Pod, job: VolcanoJob) -> Iterator[Refusal]:
        """Yield why a Volcano Job makes no pod, and what the template of the pod's task asks for.

        A task that the Job does not have is left to the rules on gangs.
        """
        title = f"Volcano Job {job.metadata.name}"
        if job.status.state.phase not in _SYNCED_PHASES:
            text = f"its {title} is {job.status.state.phase} and makes no pods"
            yield Refusal(RefusalReason.NO_REPLACEMENT, text)
        task_name = pod.metadata.annotations.get(VOLCANO_TASK_ANNOTATION, "")
        template = next((task.template for task in job.spec.tasks if task.name == task_name), None)
        if template is not None and (differences := self._differences(pod, template)):
            text = f"its {title} makes the replacement from its task {task_name}, which {differences}"
            yield Refusal(RefusalReason.TEMPLATE_DIFFERS, text)


def _if_any(refusal: Refusal | None) -> tuple[Refusal, ...]:
    return () if refusal is None else (refusal,)
