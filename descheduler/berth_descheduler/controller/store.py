"""The state that the service's threads share: parsed policies and observed plans."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Self, TypeVar

import structlog

from berth_core import (
    BerthError,
    Clock,
    DeschedulerPolicy,
    InputError,
    MigrationPlan,
    ObjectReference,
    refuse_unreadable,
)
from berth_descheduler import telemetry
from berth_descheduler.controller.decisions import ParsedPolicy, is_open
from berth_descheduler.controller.own_policies import OwnPolicies
from berth_descheduler.event_reasons import PolicyEventReason
from berth_descheduler.migration.plans.events import announce
from berth_descheduler.observers import CycleObserver
from berth_descheduler.picture import Picture
from berth_descheduler.plugins import PluginRegistry
from berth_descheduler.policy import PolicyError, PolicyRun, RunDefaults, read_policy
from berth_kube import (
    DESCHEDULER_POLICIES,
    MIGRATION_PLANS,
    PROMPT_WATCH,
    Informer,
    KubeClient,
    Resource,
    Store,
    WatchItem,
    WatchPace,
    WatchSettings,
    stop_informers,
)

_LOG = structlog.get_logger(__name__)
_LOOK_SECONDS: Final = 0.1
_AT_REST: Final = WatchSettings()
_AGAIN_SECONDS: Final = 5.0
"""Pause between a watch that the API server refused and the next."""

T = TypeVar("T", DeschedulerPolicy, MigrationPlan)


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """The shared context of the service."""

    client: KubeClient
    clock: Clock
    defaults: RunDefaults
    registry: PluginRegistry

    plan_retention: timedelta | None
    """How long plans of no policy are kept when they are over; None: for ever."""

    picture: Picture
    """The cluster, as runs and the work beside them see it."""

    watchers: tuple[CycleObserver, ...] = ()
    """What follows each cycle beside the metrics."""

    def read(self, policy: DeschedulerPolicy) -> ParsedPolicy:
        """Return a policy with its run, or with what is wrong with it."""
        run: PolicyRun | PolicyError
        try:
            refuse_unreadable("DeschedulerPolicy", policy.metadata)
            run = read_policy(policy, self.defaults, self.registry)
        except PolicyError as error:
            run = error
        except InputError as error:
            run = PolicyError([error])
        except Exception as error:  # noqa: BLE001 - a plugin that fails at one policy must not stop the others
            text = f"not readable: {type(error).__name__}: {error}"
            run = PolicyError([InputError("spec", None, "a policy that its plugins can read", said=text)])
        return ParsedPolicy(policy, run)

    def record_event(
        self, about: DeschedulerPolicy | ObjectReference, reason: PolicyEventReason, message: str, *, bad: bool
    ) -> None:
        """Record an event on a policy, or on the object that stands for it."""
        announce(self.client, self.clock, about, reason, message, bad=bad)


@dataclass(slots=True)
class WakeUp:
    """Events that are set together whenever something has changed."""

    events: list[threading.Event] = field(default_factory=list)

    def event(self) -> threading.Event:
        """Return one more event."""
        self.events.append(threading.Event())
        return self.events[-1]

    def wake(self) -> None:
        """Set all events."""
        for event in self.events:
            event.set()


class PolicyStore:
    """All policies and plans as last seen; a context manager."""

    def __init__(self, context: ServiceContext, wake_up: WakeUp) -> None:
        self._context = context
        self._wake_up = wake_up
        self._policies: Store[DeschedulerPolicy] = Store()
        self._plans: Store[MigrationPlan] = Store()
        self._pace = WatchPace(_AT_REST)
        self._informers = (
            self._informer(DESCHEDULER_POLICIES, DeschedulerPolicy, self._policies, wake_up.wake),
            self._informer(MIGRATION_PLANS, MigrationPlan, self._plans, self._take_plans),
        )
        self.own = OwnPolicies(context.client, context.clock)
        """The policies that have no object of their own."""
        self._read: dict[tuple[str, int], ParsedPolicy] = {}
        self._lock = threading.Lock()
        self._in_progress: set[str] = set()

    def __enter__(self) -> Self:
        for informer in self._informers:
            informer.start()
        return self

    def __exit__(self, *_: object) -> None:
        stop_informers(self._informers)

    def _informer(self, resource: Resource, kind: type[T], store: Store[T], changed: Callable[[], None]) -> Informer[T]:
        def handle(event: WatchItem[T]) -> None:
            if store.apply(event):
                changed()

        def failed(error: BerthError) -> None:
            _LOG.error(telemetry.WATCH_FAILED, **{telemetry.KEY_ERROR: str(error)})

        client = self._context.client
        return Informer(
            resource.plural,
            lambda stop: client.watch(resource, type=kind, stop=stop, settings=self._pace),
            handle,
            failed,
            retry_seconds=_AGAIN_SECONDS,
        )

    def _take_plans(self) -> None:
        """Notice lost connections soon while there is an open plan, whose approval or abort may come."""
        # Only in the thread of the plans' watch: another one could set the pace by plans that have changed meanwhile.
        self._pace.change(PROMPT_WATCH if any(map(is_open, self._plans.objects())) else _AT_REST)
        self._wake_up.wake()

    def is_complete(self) -> bool:
        """Return whether everything has been seen once."""
        return self._policies.listed.is_set() and self._plans.listed.is_set()

    def wait(self, over: Callable[[], bool]) -> bool:
        """Wait until everything has been seen once; return whether it has, and `over` has not come."""
        while not over() and not self.is_complete():
            self._policies.listed.wait(_LOOK_SECONDS)
            self._plans.listed.wait(_LOOK_SECONDS)
        return self.is_complete() and not over()

    def look_at_own(self) -> None:
        """Learn which policies capabilities have now, if it is time."""
        self.own.look(_by_name(self._policies))

    def known(self) -> dict[str, ParsedPolicy]:
        """Return the policies by name; each generation is read once.

        A policy of people goes before one of a capability of the same name, whenever it is made.
        """
        policies = (*self.own.all(), *_by_name(self._policies))
        with self._lock:
            # Reading a policy has all of its plugins check their arguments, and the service looks at the policies every
            # few seconds.
            reads = {key: self._read[key] for policy in policies if (key := _key(policy)) in self._read}
            for policy in policies:
                reads.setdefault(_key(policy), self._context.read(policy))
            self._read = reads
            return {policy.metadata.name: ParsedPolicy(policy, reads[_key(policy)].run) for policy in policies}

    def plans(self) -> tuple[MigrationPlan, ...]:
        """Return the plans in the order of their names."""
        return _by_name(self._plans)

    @contextmanager
    def in_progress(self, plan: str) -> Iterator[None]:
        """Mark a plan as in progress: meanwhile only the runner writes it."""
        # Adding to and discarding from a set is one step under Python's global lock, and only this thread writes.
        self._in_progress.add(plan)
        try:
            yield
        finally:
            self._in_progress.discard(plan)

    def is_in_progress(self, plan: str) -> bool:
        """Return whether the runner executes a plan."""
        return plan in self._in_progress


def _by_name(store: Store[T]) -> tuple[T, ...]:
    return tuple(sorted(store.objects(), key=lambda stored_object: stored_object.metadata.name))


def _key(policy: DeschedulerPolicy) -> tuple[str, int]:
    # The API server counts the generation up with each change of the spec only, so a new status has nothing read again
    # (`customResourceStrategy.PrepareForUpdate`).
    return policy.metadata.uid, policy.metadata.generation or 0
