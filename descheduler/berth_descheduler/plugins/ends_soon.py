"""The plugin `EndsSoon`: pods that soon end by themselves are not moved.

Their place becomes free anyway, and a move would cost them the work that they have nearly done.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from berth_core import InputError, Pod, PodEnds, format_timestamp, parse_duration, refuse_unknown
from berth_descheduler.framework import ClusterView, PodFilter, Refusal, RefusalReason

ENDS_SOON: Final = "EndsSoon"
_EXPECTED: Final = "a duration above 0, such as 30m"


@dataclass(frozen=True, slots=True)
class EndsSoon:
    """Keeps pods that say that they end within a time."""

    within: timedelta = timedelta(minutes=30)

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "EndsSoon":
        """Return the plugin with a policy's `args`; raises `InputError` that names the field."""
        refuse_unknown("args", args, {"within"})
        if "within" not in args:
            return cls()
        try:
            ends_within = parse_duration(str(args["within"]))
        except InputError as error:
            raise InputError("within", args["within"], _EXPECTED) from error
        if ends_within <= timedelta(0):
            raise InputError("within", args["within"], _EXPECTED)
        return cls(ends_within)

    def filter(self, view: ClusterView) -> PodFilter:
        """Return the filter that keeps pods by their own or their group's `volcano.sh/maximum-runtime` and deadlines.

        A pod without a time to count from is not kept.
        """
        ends = PodEnds(view.snapshot.pod_groups)

        def check(pod: Pod) -> Iterator[Refusal]:
            end = ends.of(pod)
            if end is not None and view.now is not None and view.now <= end <= view.now + self.within:
                yield Refusal(RefusalReason.ENDS_SOON, f"it is expected to end at {format_timestamp(end)}")

        return check

    def pre_eviction_filter(self, view: ClusterView) -> PodFilter:
        """Return the same filter as `filter`: a pod's annotations may have changed."""
        return self.filter(view)
