"""The metrics of the operator's kernel; each capability has its own beside its code."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY: Final = CollectorRegistry()

PHASE_CHANGES: Final = Counter(
    "berth_reservation_phase_changes", "Changes of phase of Reservations", ["phase", "reason"], registry=REGISTRY
)
SLOTS: Final = Gauge("berth_slots", "Slots of all Reservations by state", ["state"], registry=REGISTRY)
WASTED_SECONDS: Final = Counter(
    "berth_reserved_wasted_seconds",
    "Seconds for which placeholders held places that no pod came to take",
    registry=REGISTRY,
)
ACTIONS: Final = Counter("berth_operator_actions", "Actions carried out", ["action"], registry=REGISTRY)
ACTION_FAILURES: Final = Counter(
    "berth_operator_action_failures", "Reconciles that failed and were tried again", ["error"], registry=REGISTRY
)
RECONCILE_SECONDS: Final = Histogram(
    "berth_operator_reconcile_seconds", "Seconds that one reconcile took", ["kind"], registry=REGISTRY
)
WEBHOOK_SECONDS: Final = Histogram(
    "berth_webhook_seconds",
    "Seconds that one admission review took",
    registry=REGISTRY,
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.0),
)
WEBHOOK_REVIEWS: Final = Counter(
    "berth_webhook_reviews", "Admission reviews by verdict", ["verdict"], registry=REGISTRY
)
PATH_PROVEN: Final = Gauge("berth_handover_path_proven", "1 while dry-run pods come back gated", registry=REGISTRY)
LEADING: Final = Gauge("berth_operator_leading", "1 while this replica holds the Lease", registry=REGISTRY)
QUEUE_LENGTH: Final = Gauge("berth_operator_queue_length", "Keys waiting to be reconciled", registry=REGISTRY)
