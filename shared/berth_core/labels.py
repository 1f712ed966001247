"""Every label, annotation, taint and gate key of Berth."""

from typing import Final

PREFIX: Final = "berth.volcano.sh"

RESERVATION_LABEL: Final = f"{PREFIX}/reservation"
"""The uid of the Reservation that a placeholder, a gated owner pod or a probe belongs to."""

PLACEHOLDER_LABEL: Final = f"{PREFIX}/placeholder"
"""Has the value `true` on a placeholder, by which the operator's watch selects it."""

SUCCESSOR_LABEL: Final = f"{PREFIX}/successor"
"""Has the value `true` on the successor of a placeholder, which standing fences admit."""

HANDOVER_LABEL: Final = f"{PREFIX}/handover"
"""Has the value `true` on a pod from when it is given a slot until it runs; the node's fence admits it meanwhile."""

FENCE_LABEL: Final = f"{PREFIX}/fence"
"""Has the value `true` on a pod that keeps others off a node during a hand-over."""

STANDING_FENCE_LABEL: Final = f"{PREFIX}/standing-fence"
"""Says what a fence keeps off that stands until a node's pods have ended; such a fence carries `FENCE_LABEL`, too."""

BEST_EFFORT_LABEL: Final = f"{PREFIX}/best-effort"
"""Has the value `true` on a pod without requests, which standing fences admit."""

PREEMPTABLE_LABEL: Final = f"{PREFIX}/preemptable"
"""Has the value `true` on a preemptable pod, or one of a preemptable group: the fences of open lent nodes admit it."""

EVICT_PERIOD_ANNOTATION: Final = f"{PREFIX}/evict-period"
"""How long apart the evictions of one job are, on the fence of a lent node."""

EMPTY_BY_ANNOTATION: Final = f"{PREFIX}/empty-by"
"""When the present window of the zone ends, or the last one has ended, on the fence of a lent node."""

AWAITS_CAPACITY_LABEL: Final = f"{PREFIX}/awaits-capacity"
"""Has the value `true` on a placeholder that waits for the capacity of a chosen node; a standing fence admits it."""

CHOSEN_NODE_ANNOTATION: Final = f"{PREFIX}/chosen-node"
"""The node whose capacity the same placeholder waits for."""

DAEMON_POD_LABEL: Final = "pod-template-generation"
"""The label that Kubernetes puts on pods of DaemonSets, and on no others."""

PROBE_LABEL: Final = f"{PREFIX}/probe"
"""The uid of the Reservation whose hand-over a dry-run probe is to prove."""

PROBE_REGISTRATION_LABEL: Final = f"{PREFIX}/probe-registration"
"""The digest of the webhook's registration that must be in use for the probe, or `any`."""

PLAN_LABEL: Final = f"{PREFIX}/plan"
"""The name of the MigrationPlan that a Reservation belongs to."""

POLICY_LABEL: Final = f"{PREFIX}/policy"
"""The name of the DeschedulerPolicy that a MigrationPlan is of, if it fits a label."""

MANAGED_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY_OPERATOR: Final = "berth-operator"
MANAGED_BY_DESCHEDULER: Final = "berth-descheduler"

TASK_ANNOTATION: Final = f"{PREFIX}/task"
"""The name of the task that a placeholder belongs to."""

INDEX_ANNOTATION: Final = f"{PREFIX}/index"
"""The index of a placeholder's replica within its task."""

# An annotation: the value of a label has no slash and at most 63 characters.
RESERVATION_NAME_ANNOTATION: Final = f"{PREFIX}/reservation-name"
"""The `namespace/name` of a placeholder's Reservation, which people read; programs go by the uid."""

SLOT_ANNOTATION: Final = f"{PREFIX}/slot"
"""The slot of an owner pod in a hand-over, as `task/index/node`; several are `task/index+index/node`.

It is removed with the label."""

SLOTS_ADD_UP_ANNOTATION: Final = f"{PREFIX}/slots-add-up"
"""Says on a Reservation that a pod which is larger than a slot may take several of one node.

`{"slots":3,"resources":{"memory":"10Gi"}}` is the sum whose equal parts the slots are, each rounded down: a pod needs
as many as its share of it. With `true` it needs as many as together hold its requests."""

MOVE_ANNOTATION: Final = f"{PREFIX}/move"
"""The index in `spec.moves` of the move that a plan's Reservation is for."""

PLAN_UID_ANNOTATION: Final = f"{PREFIX}/plan-uid"
"""The uid under which a plan was published, begun or ended. A plan with another uid has come back from a backup."""

TEMPLATE_HASH_LABEL: Final = "pod-template-hash"
"""The label by which the ReplicaSets of a Deployment know their pods."""

RELEASED_HASH: Final = "released-by-berth"
"""Value of that label on a pod that a surge move has taken out of its ReplicaSet; no hash has its letters."""

RELEASED_ANNOTATION: Final = f"{PREFIX}/released"
"""JSON with the plan, the node, the ReplicaSet and the value that the label had, on the same pod."""

EVICTIONS_LABEL: Final = f"{PREFIX}/evictions"
"""Says whether evictions by others wait for a replacement; people set it on a namespace or a pod."""

EVICTIONS_SURGE: Final = "Surge"
EVICTIONS_EVICT: Final = "Evict"
"""Values of that label: the pod is evicted once its replacement is ready, or at once as without Berth."""

HANDOVER_GATE: Final = f"{PREFIX}/handover"
"""Scheduling gate that holds an owner pod until the hand-over of its slot."""

QUEUE_GATE: Final = f"{PREFIX}/queue"
"""Scheduling gate that holds a pod of one of Berth's queues until the queue has room for it."""

HANDOVER_TAINT: Final = f"{PREFIX}/handover"
"""NoSchedule taint that guards a node during a hand-over; its value is the deadline in Unix seconds."""

DRAINING_TAINT: Final = f"{PREFIX}/draining"
"""NoSchedule taint on the source nodes of a running plan, whose name is its value."""

FREED_TAINT: Final = f"{PREFIX}/freed"
"""PreferNoSchedule taint on a node that a plan freed, until it is needed; its value is the plan's name."""

FREED_ANNOTATION: Final = f"{PREFIX}/freed"
"""JSON with the time, the plan, its policy and the annotations that were added, on a node that a plan freed."""

ROOM_TAINT: Final = f"{PREFIX}/room"
"""NoSchedule taint on nodes where a running plan makes room (`room_taint_value`).

Only pods with a slot of the plan's Reservations on that very node tolerate it."""

ROOM_ANNOTATION: Final = f"{PREFIX}/room"
"""The index in `spec.rooms` of the plan's room that a Reservation waits for."""

VERSION_ANNOTATION: Final = f"{PREFIX}/reservation-version"
"""The resourceVersion of the Reservation that the replica which answers a probe must know."""

PATH_ANNOTATION: Final = f"{PREFIX}/handover-path"
"""Has the value `proven` on the operator's Lease while dry-run pods come back gated."""

PATH_PROVEN: Final = "proven"

FENCE_LIMITS_ANNOTATION: Final = f"{PREFIX}/max-fenced-nodes"
"""How many nodes may be fenced for a namespace and for all, such as `10%,25%`, on the operator's Lease."""

QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"
"""The queue of a placeholder whose Reservation has one, where batch schedulers read it."""

WINDOW_LABEL: Final = f"{PREFIX}/window"
"""The name of the ReservationWindow that a Reservation belongs to."""

QUEUE_SLOT_LABEL: Final = f"{PREFIX}/queue-slot"
"""The name, cut to 63 characters, of the Queue of whose guarantee a Reservation holds a part."""

WINDOW_START_ANNOTATION: Final = f"{PREFIX}/window-start"
"""The RFC 3339 time at which the occurrence of a window's Reservation starts."""

MAY_MOVE_ANNOTATION: Final = f"{PREFIX}/may-move"
"""Has the value `Consolidate` on a Reservation if pods may be moved off the nodes that its slots wait for."""

MAXIMUM_RUNTIME_ANNOTATION: Final = "volcano.sh/maximum-runtime"
"""How long a pod runs at most, as a Go duration such as `500s`; the pod or its pod group has it."""

RESERVEABLE_ANNOTATION: Final = "volcano.sh/reserveable"
"""Has the value `true` on a pod or its pod group if the pod may take a slot of a ReservationWindow."""

REVOCABLE_ZONE_LABEL: Final = "volcano.sh/revocable-zone"
"""The name of the RevocableZone by whose times a node is lent, where Volcano reads it."""

PREEMPTABLE_ANNOTATION: Final = "volcano.sh/preemptable"
"""Has the value `true` on a pod or its pod group, as annotation or label, if the pod may use lent nodes."""

JDB_MAX_UNAVAILABLE_ANNOTATION: Final = "volcano.sh/jdb-max-unavailable"
"""How many pods of a job, or which percentage, may be missing while lent nodes are emptied."""

JDB_MIN_AVAILABLE_ANNOTATION: Final = "volcano.sh/jdb-min-available"
"""How many pods of a job, or which percentage, must run meanwhile."""

STARVING_JOB_LABEL: Final = f"{PREFIX}/starving-job"
"""The uid of the starving job that a Reservation is for, or a digest of its name where it has none."""

LEADER_WORKER_SET_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
"""The name of the LeaderWorkerSet that a pod belongs to."""

CONTROL_PLANE_KEYS: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Labels and taint keys of control-plane nodes."""

CRITICAL_NODE_LABEL: Final = "critical"
"""A node with this label and the value `true` is never a source."""

LAST_DEFRAGMENTED_ANNOTATION: Final = f"{PREFIX}/last-defragmented"
"""On a node: the RFC 3339 time at which a plan last moved pods off it; `coolDownTime` counts from here."""

LAST_MOVED_ANNOTATION: Final = f"{PREFIX}/last-moved"
"""On a node: the RFC 3339 time at which a plan last moved pods off it or onto it; `nodeCoolDown` counts from here."""

COOLING_LABEL: Final = f"{PREFIX}/cooling"
"""Label `true` on a node that rests, as a selector for other deschedulers."""

COOLING_UNTIL_ANNOTATION: Final = f"{PREFIX}/cooling-until"
"""On a node with that label: the RFC 3339 time until which it rests."""
