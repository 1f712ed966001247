"""Owns the reasons that the conditions of a Reservation, and events on pods, give where it is not that of its phase.

It does not own the reasons of phases and slots (`berth_core.reservations`), nor when one holds (`conditions`).
"""

from typing import Final

OVER: Final = "Over"
"""Of HandoverReady and Bounded: the Reservation has ended."""
PROBE_GATED: Final = "ProbeGated"
PROBE_NOT_GATED: Final = "ProbeNotGated"
NOT_PROBED: Final = "NotProbed"
"""Of HandoverReady: nothing is held yet, or the first probe has not ended."""
NEVER_EXPIRES: Final = "NeverExpires"
"""Of Bounded, and of the warning, where neither `ttl` nor `expires` ends a Reservation."""
HELD_FOR_EVER: Final = "HeldForEver"
"""Of Bounded where that is meant: `ttl` is 0s."""
EXPIRES: Final = "Expires"
TEMPLATE_DIFFERS: Final = "TemplateDiffers"
"""Of the event on a pod that an owner entry names and no template fits."""
