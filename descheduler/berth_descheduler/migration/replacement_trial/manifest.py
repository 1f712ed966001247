"""The pod that a controller would make next, as it would ask the API server for it; without I/O.

Labels, annotations, names and owners are those that admission sees when the controller itself asks. The sources
are the controllers of Kubernetes: `GetPodFromTemplate` (`pkg/controller/controller_utils.go`),
`newVersionedStatefulSetPod`, `initIdentity` and `updateStorage` (`pkg/controller/statefulset/stateful_set_utils.go`),
and `manageJob` (`pkg/controller/job/job_controller.go`).
"""

import copy
from typing import Any, Final

from berth_core import Pod, Workload
from berth_core.decoding import convert
from berth_core.object_lists import RawObject
from berth_descheduler.planner.owners import statefulsets
from berth_descheduler.planner.owners.statefulsets import takes_current_revision

_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_JOB_TRACKING: Final = "batch.kubernetes.io/job-tracking"


def build_replacement(owner: RawObject, template: RawObject, raw_pod: RawObject, revision: str = "") -> dict[str, Any]:
    """Return the pod that a controller makes from a template in the stead of a pod.

    It has a name of its own, as the old pod is still there, and a StatefulSet's new pod would have the same name.
    `revision` names the StatefulSet's revision that the template is of.
    """
    replacement = _pod_of_template(owner, template)
    match owner["kind"]:
        case "StatefulSet":
            _give_identity(replacement, owner, raw_pod, revision)
        case "Job":
            _give_index(replacement, raw_pod)
        case _:
            pass
    return replacement


def old_revision(stateful_set: RawObject, raw_pod: RawObject) -> str:
    """Return the ControllerRevision by which a StatefulSet makes a pod again, "" where it uses its current template.

    Raises `ValueError` for a pod without an ordinal.
    """
    owner, pod = convert(stateful_set, Workload), convert(raw_pod, Pod)
    _require_ordinal(owner, pod)
    is_kept = takes_current_revision(owner, pod)
    return str((stateful_set.get("status") or {}).get("currentRevision") or "") if is_kept else ""


def ordinal_of(stateful_set: RawObject, raw_pod: RawObject) -> int:
    """Return a pod's ordinal; raises `ValueError` where its name has none."""
    return _require_ordinal(convert(stateful_set, Workload), convert(raw_pod, Pod))


def _require_ordinal(stateful_set: Workload, pod: Pod) -> int:
    ordinal = statefulsets.ordinal_of(stateful_set, pod)
    if ordinal is None:
        name, set_name = pod.metadata.name, stateful_set.metadata.name
        raise ValueError(f"the name {name} has no ordinal of the StatefulSet {set_name}")
    return ordinal


def template_of_revision(revision: RawObject) -> dict[str, Any]:
    """Return the pod template in a StatefulSet's ControllerRevision, which stores it as a patch of the spec."""
    template = dict(revision["data"]["spec"]["template"])
    # A ControllerRevision holds a strategic merge patch, whose template is marked `$patch: replace` (`getPatch` in
    # `pkg/controller/statefulset/stateful_set_utils.go`).
    template.pop("$patch", None)
    return template


def _pod_of_template(owner: RawObject, template: RawObject) -> dict[str, Any]:
    owner_metadata, template_metadata = owner["metadata"], template.get("metadata") or {}
    reference = {key: owner_metadata[key] for key in ("name", "uid")}
    reference |= {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    # No blockOwnerDeletion: with the plugin OwnerReferencesPermissionEnforcement it asks for a right on the owner.
    metadata = {
        "generateName": f"{owner_metadata['name']}-",
        "namespace": owner_metadata["namespace"],
        "labels": dict(template_metadata.get("labels") or {}),
        "annotations": dict(template_metadata.get("annotations") or {}),
        "ownerReferences": [reference],
    }
    if finalizers := template_metadata.get("finalizers"):
        metadata["finalizers"] = list(finalizers)
    spec = copy.deepcopy(dict(template["spec"]))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _give_identity(replacement: dict[str, Any], stateful_set: RawObject, raw_pod: RawObject, revision: str) -> None:
    """Give a StatefulSet's pod what distinguishes it from the others: host name, labels and claims."""
    name, ordinal = raw_pod["metadata"]["name"], ordinal_of(stateful_set, raw_pod)
    metadata, spec = replacement["metadata"], replacement["spec"]
    metadata["generateName"] = f"{name}-"
    metadata["labels"] |= {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(ordinal)}
    if revision:
        metadata["labels"][statefulsets.REVISION_LABEL] = revision
    spec["hostname"] = name
    if service := stateful_set["spec"].get("serviceName"):
        spec["subdomain"] = service
    claims = {
        claim["metadata"]["name"]: {"claimName": f"{claim['metadata']['name']}-{name}"}
        for claim in stateful_set["spec"].get("volumeClaimTemplates") or ()
    }
    others = [volume for volume in spec.get("volumes") or () if volume["name"] not in claims]
    if volumes := [*({"name": key, "persistentVolumeClaim": claim} for key, claim in claims.items()), *others]:
        spec["volumes"] = volumes


def _give_index(replacement: dict[str, Any], raw_pod: RawObject) -> None:
    """Give a pod of an indexed Job the index of the pod whose work it does."""
    metadata, spec = replacement["metadata"], replacement["spec"]
    metadata["finalizers"] = [*metadata.get("finalizers", ()), _JOB_TRACKING]
    index = (raw_pod["metadata"].get("annotations") or {}).get(_COMPLETION_INDEX)
    if index is None:
        return
    job_name = metadata["generateName"].removesuffix("-")
    metadata["generateName"] = f"{job_name}-{index}-"
    metadata["labels"][_COMPLETION_INDEX] = metadata["annotations"][_COMPLETION_INDEX] = index
    spec["hostname"] = f"{job_name}-{index}"
