"""The operator's parts around an API server in memory, as tests of its calls use them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import pytest

from api_server_in_memory import ApiServerInMemory
from berth_core import Pod, PriorityClass
from berth_core.reservations import RESERVATION_API_VERSION, RESERVATION_KIND, Reservation
from berth_kube.resources import PODS, PRIORITY_CLASSES, RESERVATIONS
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.events import EventRecorder
from berth_operator.reservation.act.executor import ActionExecutor
from berth_operator.reservation.act.handover_probe import HandoverProbe
from berth_operator.reservation.act.node_chooser import NodeChooser
from berth_operator.reservation.act.pod_groups import PodGroups
from berth_operator.reservation.act.priority_classes import PriorityClasses
from berth_operator.reservation.act.quota_admission import QuotaAdmission
from berth_operator.reservation.act.slow_admission import SlowAdmission
from berth_operator.reservation.act.standing_fences import StandingFences
from berth_operator.reservation.act.validator import Validator
from berth_operator.reservation.act.webhook_registration import WebhookRegistration
from berth_operator.reservation.actions import Action
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.cluster_rules import ClusterRules
from berth_operator.runtime.capability import Kernel
from berth_operator.runtime.registry import build_rules
from berth_operator.runtime.workqueue import Key
from berth_operator.settings import OperatorSettings
from builders import FakeClock, as_api
from capability_kernels import build_kernel
from handover_builders import place


@dataclass
class OperatorHarness:
    """The operator's parts around an API server in memory."""

    api: ApiServerInMemory
    cache: Cache
    scope: WebhookRegistration
    queued: list[Key]
    client_config: dict[str, str]
    leads: bool = True
    settings: OperatorSettings = field(default_factory=OperatorSettings)
    clock: FakeClock = field(default_factory=FakeClock)
    rules: ClusterRules = field(default_factory=ClusterRules)
    admission: SlowAdmission = field(init=False)
    recorder: EventRecorder = field(init=False)
    executor: ActionExecutor = field(init=False)

    def __post_init__(self) -> None:
        self.admission = SlowAdmission(1, self.clock.monotonic)
        self.recorder = EventRecorder(self.api.as_client())
        self.executor = self.executor_that(lambda: self.leads)

    def executor_that(self, leads: Callable[[], bool]) -> ActionExecutor:
        return ActionExecutor(
            self.context,
            probe=HandoverProbe(self.context, self.scope),
            priorities=self.priorities,
            pod_groups=self.pod_groups,
            validator=Validator(self.context, self.priorities, QuotaAdmission(self.settings.limits, self.rules)),
            chooser=NodeChooser(self.context, self.standing_fences.budget),
            recorder=self.recorder,
            leads=leads,
        )

    @property
    def context(self) -> Context:
        client = self.api.as_client()
        return Context(client, self.cache, self.settings, self.clock, build_rules(client), self.admission)

    @property
    def kernel(self) -> Kernel:
        """Return what a capability is built from; of the keys that it queues those are noted that are due now."""
        return build_kernel(
            self.context,
            recorder=self.recorder,
            leads=lambda: self.leads,
            enqueue=lambda key, seconds: None if seconds else self.queued.append(key),
            rules=self.rules,
        )

    @property
    def standing_fences(self) -> StandingFences:
        return StandingFences(self.context, self.priorities)

    @property
    def priorities(self) -> PriorityClasses:
        return PriorityClasses(self.api.as_client(), self.rules)

    @property
    def pod_groups(self) -> PodGroups:
        return PodGroups(self.api.as_client(), self.settings.placeholders.namespace)

    def know_classes(self, *bodies: dict[str, Any]) -> None:
        """Put priority classes on the API server, and have its watch tell of them."""
        for body in bodies:
            self.api.put(PRIORITY_CLASSES, body)
            self.rules.classes.put(msgspec.convert(body, PriorityClass))

    def know(self, *pods: Pod, of: Reservation | None = None) -> None:
        """Put objects on the API server and into the cache."""
        if of is not None:
            self.api.put(RESERVATIONS, as_api(of, api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND))
            self.cache.put_reservation(of)
        for one in pods:
            self.api.put(PODS, as_api(one))
            put = self.cache.put_owner if one.metadata.namespace == "default" else self.cache.put_placeholder
            put(one)

    def stored(self, one: Pod) -> Pod:
        found: Pod = self.api.get(PODS, one.metadata.name, namespace=one.metadata.namespace, type=Pod)
        return found

    def perform(self, *actions: Action, of: Reservation | None = None) -> list[str]:
        """Carry out actions and return the calls that this took."""
        self.api.calls.clear()
        self.executor.execute(of or place(), actions)
        return list(self.api.calls)


Harness = TypeVar("Harness", bound=OperatorHarness)


@pytest.fixture
def harness() -> OperatorHarness:
    return build_harness(OperatorHarness)


def build_harness(build: type[Harness]) -> Harness:
    api = ApiServerInMemory()
    queued: list[Key] = []
    cache = Cache(queued.append)
    client_config = {"url": "https://127.0.0.1:1/handover", "caBundle": "YQ=="}
    scope = WebhookRegistration(
        api.as_client(),
        client_config=client_config.copy,
        live_namespaces=cache.live_namespaces,
        own_namespace="berth-system",
        timeout_seconds=2,
    )
    made = build(api, cache, scope, queued, client_config)
    cache.count_time_by(made.clock.monotonic)
    return made
