"""A sum of resources that is held in equal slots, and how many of them a part of it needs."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec

from berth_core.decoding import Decoder
from berth_core.errors import InputError
from berth_core.resources import CPU, EPHEMERAL_STORAGE, MEMORY, ResourceAmounts

ROUNDED: Final = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
"""Resources of which an equal part may be rounded down; others have to divide evenly."""
_MI: Final = 1 << 20


class _Written(msgspec.Struct, frozen=True):
    """The sum as an annotation has it."""

    slots: int
    resources: dict[str, str]


_DECODER: Final = Decoder(_Written)


@dataclass(frozen=True, slots=True)
class DividedAmounts:
    """A sum and the number of equal slots that hold it, each rounded down."""

    amounts: ResourceAmounts
    slots: int
    """At least 1."""

    @property
    def of_slot(self) -> ResourceAmounts:
        """Return what one slot holds."""
        return ResourceAmounts({name: equal_part(name, amount, self.slots) for name, amount in self.amounts.items()})

    def slots_for(self, name: str, amount: int, held: int) -> int:
        """Return how many slots have an amount as their share of the sum; `held` is what each holds, not 0.

        Where a slot holds anything but its equal part, the sum says nothing about it, and the slots must hold all.
        """
        total = self.amounts.get(name)
        if held != equal_part(name, total, self.slots):
            return -(-amount // held)
        return -(-amount * self.slots // total)

    def to_annotation(self) -> str:
        return msgspec.json.encode(_Written(self.slots, self.amounts.to_quantities()), order="deterministic").decode()

    @staticmethod
    @lru_cache(maxsize=256)
    def from_annotation(text: str) -> "DividedAmounts | None":
        """Read an annotation's value, None for anything else; anyone may write it."""
        try:
            written = _DECODER.decode(text)
            amounts = ResourceAmounts.from_quantities(written.resources)
        except (msgspec.DecodeError, InputError):
            return None
        return DividedAmounts(amounts, written.slots) if written.slots > 0 else None


def equal_part(name: str, amount: int, slots: int) -> int:
    """Return an equal part of an amount in a readable unit: a tenth of 64Gi is 6553Mi and not 6871947673 bytes."""
    part, rest = divmod(amount, slots)
    return part - part % _MI if rest and name in {MEMORY, EPHEMERAL_STORAGE} and part > _MI else part
