"""Whether the pod that a controller would make can take the place that is held; without I/O."""

from collections.abc import Iterator
from typing import Any, Final

from berth_core import Pod, PodSpec, PodTemplate, effective_requests, template_differences
from berth_core.decoding import convert
from berth_core.object_lists import RawObject
from berth_descheduler.planner.owners.templates import host_ports

_VOLUME_IDENTITIES: Final = {
    "persistentVolumeClaim": "claimName",
    "ephemeral": "volumeClaimTemplate",
    "awsElasticBlockStore": "volumeID",
    "azureDisk": "diskURI",
    "cinder": "volumeID",
    "csi": "driver",
    "fc": "wwids",
    "flexVolume": "driver",
    "gcePersistentDisk": "pdName",
    "iscsi": "iqn",
    "photonPersistentDisk": "pdID",
    "portworxVolume": "volumeID",
    "rbd": "image",
    "scaleIO": "volumeName",
    "storageos": "volumeName",
    "vsphereVolume": "volumePath",
}
"""Sources of volumes that some nodes cannot reach, each with the field by which two of them are the same volume."""


def find_differences(
    replacement: RawObject, template: RawObject, old_pod: RawObject, *, scheduler_name: str
) -> tuple[str, ...]:
    """Return one phrase per difference that keeps a pod from a place that was made for the old pod's like.

    `replacement` is as the API server would store it, `template` is the Reservation's. The operator compares the same
    before it hands the place over (`template_differences`); ports, volumes and a fixed node come on top. Raises
    `InputError` or `msgspec.ValidationError` where the pod cannot be read.
    """
    place, pod = convert(template, PodTemplate), convert(replacement, Pod)
    return (
        *template_differences(place, pod, scheduler_name=scheduler_name),
        *_of_node(replacement, old_pod),
        *_of_ports(replacement["spec"], old_pod["spec"]),
        *_of_volumes(replacement["spec"], old_pod["spec"]),
    )


def find_excess(replacement: RawObject, template: RawObject) -> tuple[str, ...]:
    """Return one phrase for each resource of which a pod requests more than a place has.

    The pod is as its controller asks for it: admission has added nothing yet.
    """
    held = effective_requests(convert(template, PodTemplate).spec)
    requested = effective_requests(convert(replacement["spec"], PodSpec))
    held_quantities, quantities = held.to_quantities(), requested.to_quantities()
    return tuple(
        f"{name} requested is {quantities[name]}, above {held_quantities.get(name, '0')}"
        for name in requested.lacking(held)
    )


def _of_node(replacement: RawObject, old_pod: RawObject) -> Iterator[str]:
    """Yield that the template itself names a node, which bypasses every scheduler."""
    if node := replacement["spec"].get("nodeName"):
        yield f"nodeName is {node!r}, whichever node has the place of {old_pod['metadata']['name']}"


def _of_ports(spec: RawObject, old_spec: RawObject) -> Iterator[str]:
    # A port of the old pod is free on the target by the planner's own check; a new one may be in use there.
    further_ports = sorted(host_ports(convert(spec, PodSpec)) - host_ports(convert(old_spec, PodSpec)))
    if further_ports:
        ports = ", ".join(
            f"{f'{address}:' if address else ''}{port}/{protocol}" for port, protocol, address in further_ports
        )
        yield f"hostPort is {ports}, which the pod that leaves does not have"


def _of_volumes(spec: RawObject, old_spec: RawObject) -> Iterator[str]:
    old_volumes = list(_volumes(old_spec))
    for volume in _volumes(spec):
        if volume not in old_volumes:
            source, identity = volume
            text = "an ephemeral claim" if source == "ephemeral" else f"the {source} {identity}"
            yield f"volumes have {text}, which the pod that leaves does not have"


def _volumes(spec: RawObject) -> Iterator[tuple[str, Any]]:
    for volume in spec.get("volumes") or ():
        for source, field in _VOLUME_IDENTITIES.items():
            if volume.get(source) is not None:
                yield source, volume[source].get(field)
