"""What the descheduler asks of rehearsals: an option of `berth plan`."""

from typing import ClassVar

from berth_descheduler.capability import Capability, PlanTrial


class RehearsalCapability(Capability):
    """Carries a plan out on a twin of the cluster before it is carried out there."""

    plan_trials: ClassVar[tuple[PlanTrial, ...]] = (
        PlanTrial(
            option="--rehearse",
            help="Carry the plan out on a sandbox on this machine with the same nodes and pods, and say what differed.",
            result="rehearsal",
            source="berth_descheduler.capabilities.rehearsal.cli.rehearsal:rehearse",
        ),
    )
