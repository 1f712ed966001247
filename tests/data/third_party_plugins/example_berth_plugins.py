"""Two plugins for Berth, as somebody else would write them.

`OutdatedKernel` wants pods off nodes whose kernel is out of date, `ReleaseFreeze` keeps pods of namespaces in which a
release is running.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from berth_descheduler.framework import Candidate, ClusterView, InputError, Pod, PodFilter

KERNEL_LABEL = "example.com/kernel"
RELEASE_LABEL = "example.com/release"


@dataclass(frozen=True)
class OutdatedKernel:
    """Names the pods on nodes with one of some kernels; any other node would do."""

    kernels: frozenset[str]

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "OutdatedKernel":
        """Return the plugin for `kernels`, a list of texts."""
        kernels = args.get("kernels")
        if not isinstance(kernels, list) or not kernels:
            raise InputError("kernels", kernels, "a list of kernels, such as 5.15")
        return cls(frozenset(map(str, kernels)))

    def deschedule(self, view: ClusterView) -> Iterable[Candidate]:
        """Yield the pods on nodes with an outdated kernel."""
        kernel_of = {node.metadata.name: node.metadata.labels.get(KERNEL_LABEL) for node in view.snapshot.nodes}
        others = frozenset(name for name, kernel in kernel_of.items() if kernel not in self.kernels)
        for pod in view.snapshot.pods:
            kernel = kernel_of.get(pod.spec.node_name)
            if kernel in self.kernels and not (pod.is_daemon or pod.is_mirror):
                reason = f"{pod.spec.node_name} has the kernel {kernel}"
                yield Candidate(pod.metadata.namespace, pod.metadata.name, reason, nodes=others)


@dataclass(frozen=True)
class ReleaseFreeze:
    """Keeps the pods of namespaces that are labelled with a running release."""

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "ReleaseFreeze":
        """Return the plugin, which takes no arguments."""
        if args:
            raise InputError("args", min(args), "nothing")
        return cls()

    def filter(self, view: ClusterView) -> PodFilter:
        """Return what keeps the pods, when a plan is made."""
        frozen = {one.metadata.name for one in view.snapshot.namespaces if RELEASE_LABEL in one.metadata.labels}

        def objections(pod: Pod) -> Iterator[str]:
            """Yield the one reason, for a pod in such a namespace."""
            if pod.metadata.namespace in frozen:
                yield f"a release is running in {pod.metadata.namespace}"

        return objections

    def pre_eviction_filter(self, view: ClusterView) -> PodFilter:
        """Return the same: a release may have begun since."""
        return self.filter(view)
