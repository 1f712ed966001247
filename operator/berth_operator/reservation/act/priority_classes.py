"""The PriorityClasses by which schedulers treat placeholders as they should."""

import threading

import structlog

from berth_core import PodSpec, PriorityClass, priority_class_name
from berth_kube import PRIORITY_CLASSES, AlreadyExistsError, KubeClient, NotFoundError
from berth_operator import telemetry
from berth_operator.reservation.manifests import build_priority_class
from berth_operator.reservation.store.cluster_rules import ClusterRules

_LOG = structlog.get_logger(__name__)


class PriorityClasses:
    """Cached classes; only missing ones are fetched from the API server."""

    def __init__(self, client: KubeClient, rules: ClusterRules) -> None:
        self._client = client
        self._rules = rules
        self._creating = threading.Lock()

    def of(self, spec: PodSpec) -> int:
        """Return the priority for a pod spec.

        Raises `NotFoundError` for an unknown class.
        """
        class_name = spec.priority_class_name
        if not class_name:
            default = self._rules.default_class()
            return default.value if default else 0
        priority_class = self._rules.classes.get(class_name)
        if priority_class is None:
            priority_class = self._client.get(PRIORITY_CLASSES, class_name, type=PriorityClass)
            self._rules.classes.put(priority_class)
        return priority_class.value

    def ensure(self, value: int) -> None:
        """Create the placeholders' class for a value if it is missing."""
        class_name = priority_class_name(value)
        if self._rules.classes.get(class_name) is None:
            with self._creating:  # those that want it at the same time wait for the first
                self._create_missing(class_name, value)

    def _create_missing(self, name: str, value: int) -> None:
        if self._rules.classes.get(name) is not None:
            return
        body = build_priority_class(value)
        try:
            priority_class = self._client.create(PRIORITY_CLASSES, body, type=PriorityClass)
        except AlreadyExistsError:
            priority_class = self._client.get(PRIORITY_CLASSES, name, type=PriorityClass)
        self._rules.classes.put(priority_class)

    def forget(self, value: int) -> None:
        """Forget that a class exists; the next placeholder creates it again."""
        self._rules.classes.forget(priority_class_name(value))

    def collect(self) -> None:
        """Delete the placeholders' classes; only while no Reservation is live."""
        for class_name in self._rules.managed_classes():
            try:
                self._client.delete(PRIORITY_CLASSES, class_name)
            except NotFoundError:
                pass
            else:
                _LOG.info(telemetry.CLASS_COLLECTED, **{telemetry.KEY_NAME: class_name})
            self._rules.classes.forget(class_name)
