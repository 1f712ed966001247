"""Every label, annotation, taint and gate key of Berth."""

from typing import Final

PREFIX: Final = "berth.volcano.sh"

RESERVATION_LABEL: Final = f"{PREFIX}/reservation"
"""On placeholders, gated owner pods and probes: the uid of their Reservation."""

PLACEHOLDER_LABEL: Final = f"{PREFIX}/placeholder"
"""On a placeholder pod, value `true`; the operator watches it in its own namespace."""

SUCCESSOR_LABEL: Final = f"{PREFIX}/successor"
"""On the successor of a placeholder, value `true`: standing fences admit it."""

HANDOVER_LABEL: Final = f"{PREFIX}/handover"
"""On the pod that takes a slot, value `true`, from when it has its slot until it runs: the node's fence admits it."""

FENCE_LABEL: Final = f"{PREFIX}/fence"
"""On the pod that keeps others off a node during a hand-over, value `true`."""

STANDING_FENCE_LABEL: Final = f"{PREFIX}/standing-fence"
"""On a fence that stands until a node's pods have ended: what it keeps off; it carries `FENCE_LABEL`, too."""

BEST_EFFORT_LABEL: Final = f"{PREFIX}/best-effort"
"""On a pod without requests that standing fences admit, value `true`."""

PREEMPTABLE_LABEL: Final = f"{PREFIX}/preemptable"
"""On a pod that the fences of open lent nodes admit, as it or its group is annotated; value `true`."""

EVICT_PERIOD_ANNOTATION: Final = f"{PREFIX}/evict-period"
"""On the fence of a lent node: how long apart the evictions of one job are."""

EMPTY_BY_ANNOTATION: Final = f"{PREFIX}/empty-by"
"""On the fence of a lent node: when the present window of its zone ends, or the last one has ended."""

AWAITS_CAPACITY_LABEL: Final = f"{PREFIX}/awaits-capacity"
"""On a placeholder that waits for the capacity of a chosen node, value `true`: a standing fence admits it."""

CHOSEN_NODE_ANNOTATION: Final = f"{PREFIX}/chosen-node"
"""On the same placeholder: the node whose capacity it waits for."""

DAEMON_POD_LABEL: Final = "pod-template-generation"
"""Kubernetes' own: exactly the pods of DaemonSets carry it."""

PROBE_LABEL: Final = f"{PREFIX}/probe"
"""On a dry-run probe: the uid of the Reservation whose hand-over is being proven."""

PROBE_REGISTRATION_LABEL: Final = f"{PREFIX}/probe-registration"
"""On the same pod, value: the digest of the webhook's registration that must be in use, or `any`."""

PLAN_LABEL: Final = f"{PREFIX}/plan"
"""On a Reservation of a plan: the name of the MigrationPlan."""

POLICY_LABEL: Final = f"{PREFIX}/policy"
"""On a policy's MigrationPlan: the DeschedulerPolicy's name, if it fits a label."""

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
"""On an owner pod in a hand-over: `task/index/node` of its slot, or `task/index+index/node` of several.

It is removed with the label."""

SLOTS_ADD_UP_ANNOTATION: Final = f"{PREFIX}/slots-add-up"
"""On a Reservation: that a pod which is larger than a slot may take several of one node.

`{"slots":3,"resources":{"memory":"10Gi"}}` is the sum whose equal parts the slots are, each rounded down: a pod needs
as many as its share of it. With `true` it needs as many as together hold its requests."""

MOVE_ANNOTATION: Final = f"{PREFIX}/move"
"""On a Reservation of a plan: the index of the move in `spec.moves`."""

PLAN_UID_ANNOTATION: Final = f"{PREFIX}/plan-uid"
"""On a plan: the uid under which it was published, begun or ended. Another uid is that of a plan that came back."""

TEMPLATE_HASH_LABEL: Final = "pod-template-hash"
"""Kubernetes' own, on the pods of a Deployment: by it the ReplicaSet knows its pods."""

RELEASED_HASH: Final = "released-by-berth"
"""Value of that label on a pod that a surge move has taken out of its ReplicaSet; no hash has its letters."""

RELEASED_ANNOTATION: Final = f"{PREFIX}/released"
"""On the same pod, as JSON: the plan, the node, the ReplicaSet and the value that the label had."""

EVICTIONS_LABEL: Final = f"{PREFIX}/evictions"
"""On a namespace or a pod: whether evictions by others wait for a replacement; set by people."""

EVICTIONS_SURGE: Final = "Surge"
EVICTIONS_EVICT: Final = "Evict"
"""Values of that label: a replacement first, or as ever."""

HANDOVER_GATE: Final = f"{PREFIX}/handover"
"""Scheduling gate that holds an owner pod until the hand-over of its slot."""

QUEUE_GATE: Final = f"{PREFIX}/queue"
"""Scheduling gate that holds a pod of one of Berth's queues until the queue has room for it."""

HANDOVER_TAINT: Final = f"{PREFIX}/handover"
"""NoSchedule taint that guards a node during a hand-over; value: deadline in unix seconds."""

DRAINING_TAINT: Final = f"{PREFIX}/draining"
"""NoSchedule taint on the source nodes of a running plan; value: the plan's name."""

FREED_TAINT: Final = f"{PREFIX}/freed"
"""PreferNoSchedule taint on a node that a plan freed, until it is needed; value: the plan's name."""

FREED_ANNOTATION: Final = f"{PREFIX}/freed"
"""On a node that a plan freed, as JSON: time, plan, policy, and the annotations added."""

ROOM_TAINT: Final = f"{PREFIX}/room"
"""NoSchedule taint on nodes where a running plan makes room (`room_taint_value`).

Only pods with a slot of the plan's Reservations on that very node tolerate it."""

ROOM_ANNOTATION: Final = f"{PREFIX}/room"
"""On a Reservation that waits for a plan's room: the index of the room in `spec.rooms`."""

VERSION_ANNOTATION: Final = f"{PREFIX}/reservation-version"
"""On a probe: the resourceVersion of the Reservation that the answering replica must know."""

PATH_ANNOTATION: Final = f"{PREFIX}/handover-path"
"""On the operator's Lease while dry-run pods come back gated; value: `proven`."""

PATH_PROVEN: Final = "proven"

FENCE_LIMITS_ANNOTATION: Final = f"{PREFIX}/max-fenced-nodes"
"""On the operator's Lease: how many nodes may be fenced for a namespace and for all, such as `10%,25%`."""

QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"
"""On a placeholder of a Reservation with a queue: that queue, as batch schedulers read it."""

WINDOW_LABEL: Final = f"{PREFIX}/window"
"""On a Reservation of a ReservationWindow: the name of the window."""

QUEUE_SLOT_LABEL: Final = f"{PREFIX}/queue-slot"
"""On a Reservation that holds a part of a Queue's guarantee: the name of the queue, cut to 63 characters."""

WINDOW_START_ANNOTATION: Final = f"{PREFIX}/window-start"
"""On the same Reservation: the RFC 3339 time at which its occurrence starts."""

MAY_MOVE_ANNOTATION: Final = f"{PREFIX}/may-move"
"""On the same Reservation, value `Consolidate`: the descheduler may move pods off the nodes that its slots wait for."""

MAXIMUM_RUNTIME_ANNOTATION: Final = "volcano.sh/maximum-runtime"
"""On a pod or its pod group: how long the pod runs at most, as a Go duration such as `500s`."""

RESERVEABLE_ANNOTATION: Final = "volcano.sh/reserveable"
"""On a pod or its pod group, value `true`: it may take a slot of a ReservationWindow."""

REVOCABLE_ZONE_LABEL: Final = "volcano.sh/revocable-zone"
"""On a node, as Volcano reads it: the name of the RevocableZone by whose times it is lent."""

PREEMPTABLE_ANNOTATION: Final = "volcano.sh/preemptable"
"""On a pod, as annotation or label, or on its pod group; value `true`: it may use lent nodes, and be evicted."""

JDB_MAX_UNAVAILABLE_ANNOTATION: Final = "volcano.sh/jdb-max-unavailable"
"""On a pod or its pod group: how many pods of the job may be missing while lent nodes are emptied; or a percentage."""

JDB_MIN_AVAILABLE_ANNOTATION: Final = "volcano.sh/jdb-min-available"
"""On a pod or its pod group: how many pods of the job must run meanwhile; or a percentage."""

STARVING_JOB_LABEL: Final = f"{PREFIX}/starving-job"
"""On a Reservation for a starving job: the job's uid, or a digest of its name where it has none."""

LEADER_WORKER_SET_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
"""On the pods of a LeaderWorkerSet: its name."""

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
