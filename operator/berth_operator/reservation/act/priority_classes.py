"""The PriorityClasses by which schedulers treat placeholders as they should."""

import threading
from contextlib import suppress

from berth_core import MANAGED_BY_OPERATOR, MANAGED_LABEL, PermanentError, PodSpec, PriorityClass, priority_class_name
from berth_kube import PRIORITY_CLASSES, AlreadyExistsError, KubeClient, NotFoundError
from berth_operator.reservation.manifests import build_priority_class
from berth_operator.reservation.store.cluster_rules import ClusterRules


class UnfitPriorityClassError(PermanentError):
    """A PriorityClass with the name of the placeholders' is not ours, and has another value or preempts."""


class PriorityClasses:
    """The PriorityClasses of owners, read from a cache, and those of placeholders, created when first needed.

    Ours are never deleted: the admission of an API server may not know a new class when its first pod comes.
    """

    def __init__(self, client: KubeClient, rules: ClusterRules) -> None:
        self._client = client
        self._rules = rules
        self._creating = threading.Lock()

    def of(self, spec: PodSpec) -> int:
        """Return the priority of a pod spec; raises `NotFoundError` for an unknown class."""
        class_name = spec.priority_class_name
        # As the admission plugin Priority does: the class with `globalDefault`, else 0.
        if not class_name:
            default = self._rules.default_class()
            return default.value if default else 0
        priority_class = self._rules.classes.get(class_name)
        if priority_class is None:
            priority_class = self._client.get(PRIORITY_CLASSES, class_name, type=PriorityClass)
            self._rules.classes.put(priority_class)
        return priority_class.value

    def ensure(self, value: int) -> None:
        """Create the placeholders' class for a value if it is missing, or replace ours if it differs.

        Raises `UnfitPriorityClassError` if a class of others has the name and another meaning.
        """
        if not self._is_known(value):
            with self._creating:  # workers that need it at the same time wait for the first of them
                if not self._is_known(value):
                    self._rules.classes.put(self._created(value))

    def _is_known(self, value: int) -> bool:
        known_class = self._rules.classes.get(priority_class_name(value))
        return known_class is not None and _fits(known_class, value)

    def _created(self, value: int) -> PriorityClass:
        """Return the class of a value, made now unless it is there and fits."""
        name, body = priority_class_name(value), build_priority_class(value)
        try:
            return self._client.create(PRIORITY_CLASSES, body, type=PriorityClass)
        except AlreadyExistsError:
            existing = self._client.get(PRIORITY_CLASSES, name, type=PriorityClass)
        if _fits(existing, value):
            return existing
        if existing.metadata.labels.get(MANAGED_LABEL) != MANAGED_BY_OPERATOR:
            preempts = "" if existing.preemption_policy == "Never" else " and preempts"
            text = (
                f"the PriorityClass {name} is not Berth's and has the value {existing.value}{preempts}: delete it, and "
                f"Berth makes its own of the value {value}"
            )
            raise UnfitPriorityClassError(text)
        with suppress(NotFoundError):
            # `value` and `preemptionPolicy` are immutable (`ValidatePriorityClassUpdate`), so the class is made anew.
            # Pods keep the priority that admission wrote into them.
            self._client.delete(PRIORITY_CLASSES, name, uid=existing.metadata.uid)
        return self._client.create(PRIORITY_CLASSES, body, type=PriorityClass)

    def forget(self, value: int) -> None:
        """Forget that a class exists; the next placeholder creates it again."""
        self._rules.classes.forget(priority_class_name(value))


def _fits(priority_class: PriorityClass, value: int) -> bool:
    """Return whether pods of a class have the value, preempt nothing, and are all ours."""
    return (
        priority_class.value == value
        and priority_class.preemption_policy == "Never"
        and not priority_class.global_default
    )
