"""What the 64-bit arithmetic of the reference makes of a quantity, its overflows and odd roundings included.

It is no second parser to rely on: it only tells where the reference's answers stop being the exact ones.
"""

import re
from typing import NamedTuple

SUFFIX = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(.*)")
DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
MOST = (1 << 63) - 1
MULTIPLIED_WITHOUT_A_CHECK = {0, 1, 2, 3, 6, 9}


class Small(NamedTuple):
    """The form that the reference uses for short numbers: value * 10 ** scale."""

    value: int
    scale: int


def reference_answers(text: str, nanos: int) -> dict[str, int]:
    """Return the reference's milli, nano and value of a text whose exact number of billionths is known."""
    small = small_form(text)
    targets = {"milli": -3, "nano": -9, "value": 0}
    if small is not None:
        return {name: scaled_small(small, target) for name, target in targets.items()}
    capped = abs(nanos) == MOST * 10**9
    unscaled, digits = (nanos // 10**9, 0) if capped else (nanos, 9)
    return {name: scaled_large(unscaled, digits + target) for name, target in targets.items()}


def small_form(text: str) -> Small | None:
    """Return the short form of a text, None where the reference takes the long one."""
    parts = SUFFIX.fullmatch(text)
    assert parts
    whole, fraction, suffix = parts[2].lstrip("0") or "0", parts[3] or "", parts[4]
    sign = -1 if parts[1] == "-" else 1
    if suffix in BINARY:
        room = 15 - len(whole) - int(BINARY[suffix] * 3 / 10) - 1
        return None if fraction or room < 0 else Small(sign * int(whole) << BINARY[suffix], 0)
    scale = (DECIMAL[suffix] if suffix in DECIMAL else int(suffix[1:])) - len(fraction)
    if len(whole + fraction) > 18 or scale < -9:
        return None
    return Small(sign * int(whole + fraction), scale)


def scaled_small(small: Small, target: int) -> int:
    """Round away from zero going down; going up, overflow silently or give nothing."""
    places = small.scale - target
    if places < 0:
        rounded: int = -(-abs(small.value) // 10**-places)
        return rounded if small.value >= 0 else -rounded
    product: int = small.value * 10**places
    if places in MULTIPLIED_WITHOUT_A_CHECK:
        return wrapped(product)
    return product if -MOST <= product <= MOST else 0


def scaled_large(unscaled: int, places: int) -> int:
    """Divide by a power of ten, wrapping first where the number is negative, and adding one to any remainder."""
    if places < 0:
        return wrapped(wrapped(unscaled) * 10**-places)
    if unscaled < MOST:
        unscaled = wrapped(unscaled)
        quotient = abs(unscaled) // 10**places * (1 if unscaled >= 0 else -1)
    else:
        quotient = wrapped(unscaled // 10**places)
    return wrapped(quotient + (1 if unscaled % 10**places else 0))


def wrapped(number: int) -> int:
    """Return what is left of a number in 64 bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
