"""What a plan's state forbids: REST answers 409."""

from berth_core import PermanentError


class PlanStateError(PermanentError):
    """The plan's state does not allow the request."""
