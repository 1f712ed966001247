"""Every label, annotation, taint and gate key that Berth puts on an object; nothing computes a key elsewhere."""

from typing import Final

PREFIX: Final = "berth.volcano.sh"

RESERVATION_LABEL: Final = f"{PREFIX}/reservation"
"""On a placeholder, on a gated owner pod and on a probe: the uid of the Reservation it belongs to."""

PLACEHOLDER_LABEL: Final = f"{PREFIX}/placeholder"
"""On a placeholder pod, value `true`; what the operator watches in its own namespace."""

SUCCESSOR_LABEL: Final = f"{PREFIX}/successor"
"""On a placeholder that takes the place of another one, value `true`: the fence of its node lets it in."""

FENCE_LABEL: Final = f"{PREFIX}/fence"
"""On the pod that keeps others off a node while a slot on it changes hands, value `true`."""

DAEMON_POD_LABEL: Final = "pod-template-generation"
"""Kubernetes' own: pods of DaemonSets carry it, and no others."""

PROBE_LABEL: Final = f"{PREFIX}/probe"
"""On the pod of a dry-run probe, value: the uid of the Reservation whose hand-over is being proven."""

PROBE_REGISTRATION_LABEL: Final = f"{PREFIX}/probe-registration"
"""On the same pod, value: the digest of the webhook's registration that must be in use, or `any`."""

PLAN_LABEL: Final = f"{PREFIX}/plan"
"""On a Reservation made for a plan: the name of the MigrationPlan."""

POLICY_LABEL: Final = f"{PREFIX}/policy"
"""On a MigrationPlan made for a policy: the name of the DeschedulerPolicy, where it is short enough for a label."""

MANAGED_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY_OPERATOR: Final = "berth-operator"
MANAGED_BY_DESCHEDULER: Final = "berth-descheduler"

TASK_ANNOTATION: Final = f"{PREFIX}/task"
"""On a placeholder: the name of the Reservation's task."""

INDEX_ANNOTATION: Final = f"{PREFIX}/index"
"""On a placeholder: the index of the replica within its task."""

RESERVATION_NAME_ANNOTATION: Final = f"{PREFIX}/reservation-name"
"""On a placeholder, for people: `namespace/name` of the Reservation."""

SLOT_ANNOTATION: Final = f"{PREFIX}/slot"
"""On an owner pod during its hand-over: `task/index/node`, the slot it was given; taken off with the label."""

MOVE_ANNOTATION: Final = f"{PREFIX}/move"
"""On a Reservation made for a plan: the index of the move in `spec.moves`."""

HANDOVER_GATE: Final = f"{PREFIX}/handover"
"""Scheduling gate that keeps an owner pod back until its slot is being handed over."""

HANDOVER_TAINT: Final = f"{PREFIX}/handover"
"""NoSchedule taint that guards a node while a slot on it changes hands; value: its deadline in unix seconds."""

DRAINING_TAINT: Final = f"{PREFIX}/draining"
"""NoSchedule taint on the source nodes of a running plan; value: the plan's name."""

FREED_TAINT: Final = f"{PREFIX}/freed"
"""PreferNoSchedule taint on a node that a plan freed, until it is needed; value: the plan's name."""

FREED_ANNOTATION: Final = f"{PREFIX}/freed"
"""On a node that a plan freed, as JSON: when, by which plan and policy, and which annotations came with that."""

ROOM_TAINT: Final = f"{PREFIX}/room"
"""NoSchedule taint on the nodes where a running plan makes room; its value is of plan and node (`room_taint_value`).

Only what has a slot of the plan's Reservations on that very node tolerates it."""

ROOM_ANNOTATION: Final = f"{PREFIX}/room"
"""On a Reservation that waits for the room that a plan makes: the index of the room in `spec.rooms`."""

VERSION_ANNOTATION: Final = f"{PREFIX}/reservation-version"
"""On a probe: the resourceVersion of the Reservation that whoever answers has to have heard of."""

PATH_ANNOTATION: Final = f"{PREFIX}/handover-path"
"""On the operator's Lease while its holder has dry-run pods come back gated; value: `proven`."""

PATH_PROVEN: Final = "proven"

QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"
"""On a placeholder of a Reservation that names a queue: that queue, as schedulers with queues read it."""

CONTROL_PLANE_KEYS: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Labels, and keys of taints, of the nodes that run the cluster itself."""

CRITICAL_NODE_LABEL: Final = "critical"
"""A node that carries this label with the value `true` is never a source."""

LAST_DEFRAGMENTED_ANNOTATION: Final = f"{PREFIX}/last-defragmented"
"""On a node: the RFC 3339 time at which a plan last moved pods off it; `coolDownTime` counts from here."""

LAST_MOVED_ANNOTATION: Final = f"{PREFIX}/last-moved"
"""On a node: the RFC 3339 time at which a plan last moved pods off it or onto it; `nodeCoolDown` counts from here."""

COOLING_LABEL: Final = f"{PREFIX}/cooling"
"""Label `true` on a node while it rests, for other deschedulers to select by."""

COOLING_UNTIL_ANNOTATION: Final = f"{PREFIX}/cooling-until"
"""On a node that is labelled so: the RFC 3339 time until which it rests."""
