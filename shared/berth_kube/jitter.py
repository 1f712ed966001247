"""Owns the chance by which waits are spread, so that clients do not all come at once.

It is apart from the chance of the `random` module, which belongs to whoever seeds it: threads draw from this one.
"""

import random
from typing import Final

CHANCE: Final = random.Random()  # noqa: S311 - spreads load, guards nothing
