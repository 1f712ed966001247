"""Forgets the texts of a cluster whose meaning is cached."""

from berth_core.clock import forget_times
from berth_core.divided_amounts import DividedAmounts
from berth_core.durations import parse_duration
from berth_core.names import is_qualified_name
from berth_core.objects.metadata import api_group
from berth_core.resources import forget_quantities
from berth_core.selectors import is_valid
from berth_core.shared_parts import forget_parts


def forget_read_texts() -> None:
    """Forget the texts that were read so far, as after a snapshot of a large cluster: each is read again.

    A text of a few bytes keeps the mebibyte in which a decoder has put it beside the rest of its object.
    """
    forget_quantities()
    forget_parts()
    forget_times()
    for cached in (api_group, is_qualified_name, is_valid, parse_duration):
        cached.cache_clear()
    DividedAmounts.from_annotation.cache_clear()
