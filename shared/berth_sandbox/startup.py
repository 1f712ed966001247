"""The order in which a sandbox comes up, from an empty folder to a ready control plane."""

import datetime as dt
import time
from collections.abc import Callable, Iterable

from berth_kube import NO_RETRIES, ClientSettings, KubeClient, connect
from berth_sandbox import bootstrap, processes
from berth_sandbox.builds import MANIFESTS_FOLDER
from berth_sandbox.certificates import KWOK
from berth_sandbox.components import SERVICES, VOLCANO_COMPONENTS, Binaries, Component, ComponentPlace, build_command
from berth_sandbox.configuration import write_configuration
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.ports import PortReservation
from berth_sandbox.readiness import wait_for, wait_until_ready
from berth_sandbox.records import SandboxRecord, write_record
from berth_sandbox.settings import SandboxSettings

Progress = Callable[[str], None]
"""Takes one line of progress for the user."""

_FIRST = (Component.ETCD, Component.API_SERVER)


def bring_up(folder: SandboxFolder, binaries: Binaries, settings: SandboxSettings, progress: Progress) -> SandboxRecord:
    """Start all components, install Berth and return the record once all components are ready."""
    from berth_sandbox.key_files import write_certificates  # noqa: PLC0415 - needs what an extra brings

    deadline = time.monotonic() + settings.timeout_seconds
    now = dt.datetime.now(dt.UTC)
    reservation = PortReservation.make()
    try:
        record = SandboxRecord(
            settings=settings,
            ports=reservation.ports,
            binaries={name: str(path) for name, path in binaries.items()},
            started=now.isoformat(timespec="seconds"),
        )
        write_certificates(folder, now=now)
        write_configuration(folder, reservation.ports, settings)
        write_record(folder, record)
        _start_control_plane(record.place(folder), settings, deadline, progress)
    finally:
        reservation.release()
    return record


def _start_control_plane(place: ComponentPlace, settings: SandboxSettings, deadline: float, progress: Progress) -> None:
    """Start the API server first, then the rest, and install Berth meanwhile."""
    progress("starting etcd and kube-apiserver")
    start_components(_FIRST, place)
    wait_until_ready(_FIRST, place.folder, place.ports, deadline=deadline)
    later = {*_FIRST, *VOLCANO_COMPONENTS, *SERVICES}
    second = tuple(component for component in expected_components(settings) if component not in later)
    progress("starting " + ", ".join(second))
    start_components(second, place)
    with connect_as_admin(place.folder) as client:
        bootstrap.restrict_kubelets(client, KWOK.user)
        bootstrap.install_berth(client)
    wait_until_ready(second, place.folder, place.ports, deadline=deadline)
    with connect_as_admin(place.folder, ClientSettings(retries=NO_RETRIES)) as prober:
        wait_for(
            lambda: bootstrap.is_installed(prober),
            component=Component.CONTROLLER_MANAGER,
            folder=place.folder,
            deadline=deadline,
        )
    if settings.volcano:
        _start_volcano(place, deadline, progress)


def _start_volcano(place: ComponentPlace, deadline: float, progress: Progress) -> None:
    """Start Volcano once its CRDs are served: otherwise its scheduler waits whole seconds for its queues."""
    progress("starting " + ", ".join(VOLCANO_COMPONENTS))
    manifests = place.binaries[Component.VOLCANO_SCHEDULER.binary].parent / MANIFESTS_FOLDER
    with connect_as_admin(place.folder, ClientSettings(retries=NO_RETRIES)) as client:
        defined = bootstrap.install_definitions(client, manifests)
        wait_for(
            lambda: bootstrap.are_served(client, defined),
            component=Component.API_SERVER,
            folder=place.folder,
            deadline=deadline,
        )
    start_components(VOLCANO_COMPONENTS, place)
    wait_until_ready(VOLCANO_COMPONENTS, place.folder, place.ports, deadline=deadline)


def expected_components(settings: SandboxSettings) -> tuple[Component, ...]:
    """Return the components that a sandbox of these settings has."""
    asked_for = dict.fromkeys(VOLCANO_COMPONENTS, settings.volcano) | {
        Component.SECOND_SCHEDULER: settings.second_scheduler,
        **dict.fromkeys(SERVICES, settings.services),
    }
    return tuple(component for component in Component if asked_for.get(component, True))


def connect_as_admin(folder: SandboxFolder, settings: ClientSettings | None = None) -> KubeClient:
    """Return a client with all rights."""
    return connect(kubeconfig=str(folder.kubeconfig), user_agent="berth-sandbox", settings=settings)


def start_components(components: Iterable[Component], place: ComponentPlace) -> None:
    """Start components without waiting for them."""
    for component in components:
        processes.spawn(component, build_command(component, place), place.folder)
