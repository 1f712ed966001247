"""What every part of a plan's execution shares."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from berth_core import Clock
from berth_descheduler.migration.operator.liveness import OperatorLiveness
from berth_descheduler.migration.replacement_trial.trial import ReplacementTrial
from berth_descheduler.migration.validation.plan_review import PlanValidator
from berth_descheduler.migration.validation.pre_eviction import PreEvictionCheck
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Phase
from berth_descheduler.picture import Picture
from berth_descheduler.settings import CycleSettings, ExecutionSettings
from berth_kube import KubeClient, LeaseHolder


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanContext:
    """The clients, checks and settings of one run, made once and passed to every part."""

    client: KubeClient
    clock: Clock
    picture: Picture
    """The cluster as the run sees it, which the run may watch."""

    settings: CycleSettings
    observer: CycleObserver
    timed: Callable[[Phase], AbstractContextManager[None]]
    """Measures a phase of the cycle."""

    stop: threading.Event
    """Set by a signal: begin nothing new, bring to a safe end what is under way."""

    lease: LeaseHolder
    """When it is lost, another process may continue the plan: do nothing more."""

    operator: OperatorLiveness
    reviewer: PlanValidator
    """Validates the plan on the cluster as it is, before each wave."""

    pre_eviction_check: PreEvictionCheck
    """Asked before each eviction."""

    replacement_trial: ReplacementTrial
    """Tries by dry run what would come in a pod's stead."""

    @property
    def execution(self) -> ExecutionSettings:
        return self.settings.execution
