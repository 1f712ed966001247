"""The commands on plans in the cluster: `berth plans`, `show`, `approve` and `abort`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

import click
from rich.console import RenderableType

from berth_core import (
    STARVING_JOB_LABEL,
    Clock,
    DeschedulerPolicy,
    InputError,
    MigrationPlan,
    PlanPhase,
    Reservation,
    RunMode,
    SystemClock,
)
from berth_descheduler.cli.plan_waiting import PlanWaiter, WaitTimeoutError
from berth_descheduler.cli.shown_plans import recall, remember
from berth_descheduler.migration.absent_programs import SERVICE, why_absent
from berth_descheduler.migration.plans.conflicts import refuse_approval
from berth_descheduler.migration.plans.looked_at import LookedAt
from berth_descheduler.migration.plans.requests import abort, approve
from berth_descheduler.options import (
    Output,
    all_namespaces_option,
    cluster_options,
    complete_plans,
    complete_policies,
    duration_option,
    names_of,
    objects_output_option,
    selector_option,
    write_described,
    write_names,
)
from berth_descheduler.report import (
    NO_PLANS,
    Occasion,
    PlanHead,
    PlanList,
    ReportFile,
    Terminal,
    describe_stored_plan,
    list_plan,
    newest_first,
    output_console,
    price_option,
    refuse_second_prices,
    render_plan_list,
    render_stored_plan,
    render_waiting_rooms,
    report_option,
    stored_plan_page,
    what_to_do,
)
from berth_descheduler.snapshots import read_capacity
from berth_kube import MIGRATION_PLANS, RESERVATIONS, KubeClient, KubeError, NotFoundError, Resource, connect
from berth_service.command_line import OwnCommand, write_notice

F = TypeVar("F", bound=Callable[..., Any])

_FAILED: Final = 1


def _waits_for_approval(plan: PlanHead) -> bool:
    is_decided = plan.spec.approved or plan.is_aborted or plan.spec.mode is RunMode.PLAN
    return plan.phase is PlanPhase.PROPOSED and not is_decided


def _may_be_aborted(plan: PlanHead) -> bool:
    return not (plan.phase.terminal or plan.is_aborted)


def _plan_argument(takes: Callable[[PlanHead], bool]) -> Callable[[F], F]:
    """Return a decorator that adds PLAN; shells complete the names of plans that the command takes."""
    return click.argument("plan", shell_complete=names_of(MIGRATION_PLANS, PlanHead, takes))


def wait_options(condition: str, default_timeout: str) -> Callable[[F], F]:
    """Return a decorator that adds `--wait`, until a condition in words holds, and `--timeout`."""

    def add(command: F) -> F:
        timeout = f"With --wait: give up after this long; default {default_timeout}."
        command = click.option("--timeout", default=default_timeout, metavar="DURATION", help=timeout)(command)
        return click.option("--wait", is_flag=True, help=f"Wait until {condition}.")(command)

    return add


@click.command("plans", cls=OwnCommand)
@cluster_options
@click.option("--policy", metavar="NAME", shell_complete=complete_policies, help="Only plans of this policy.")
@click.option(
    "--phase",
    multiple=True,
    type=click.Choice([phase.value for phase in PlanPhase], case_sensitive=False),
    help="Only plans in this phase; may be repeated.",
)
@selector_option("plans")
@all_namespaces_option
@objects_output_option
def plans_command(
    *,
    kubeconfig: str | None,
    context: str | None,
    policy: str | None,
    phase: tuple[str, ...],
    selector: str,
    output: Output,
) -> None:
    """List the plans in the cluster, the newest first, with their progress, and the jobs that nodes are kept for."""
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-plans") as client:
        plans = _list(client, selector)
        room_reservations = _kept_for_jobs(client) if output.for_people else ()
    if policy is not None:
        plans = tuple(listed_plan for listed_plan in plans if listed_plan.spec.policy == policy)
    if phase:
        plans = tuple(listed_plan for listed_plan in plans if listed_plan.phase.value in phase)
    if output.for_people:
        _print(render_plan_list(plans, SystemClock().now(), wide=output is Output.WIDE), room_reservations)
    else:
        write_objects(
            MIGRATION_PLANS, plans, PlanList(items=tuple(map(list_plan, plans)), remaining=0, go_on=""), output
        )
        if not plans:
            write_notice(NO_PLANS)


@click.command("show", cls=OwnCommand)
@click.argument("plan", required=False, shell_complete=complete_plans)
@cluster_options
@objects_output_option
@report_option
@price_option
def show_command(
    *,
    plan: str | None,
    kubeconfig: str | None,
    context: str | None,
    output: Output,
    report: ReportFile | None,
    price: Mapping[str, float],
) -> None:
    """Show a plan of the cluster: its moves with states and reasons, and what it achieved beside what it predicted.

    Without a name, the newest plan. `berth approve` approves what was shown here last.
    """
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-show") as client:
        stored_plan = _newest(client) if plan is None else _get(client, plan)
        if output is not Output.NAME:
            remember(client.server_url, stored_plan)
        predicted = stored_plan.spec.predicted
        refuse_second_prices(price, is_priced=predicted is not None and bool(predicted.freed_price_per_hour))
        keys_of_plan = {
            (room.namespace, room_status.reservation)
            for room, room_status in zip(stored_plan.spec.rooms, stored_plan.room_statuses, strict=True)
        }
        room_reservations = _kept_for_jobs(client) if keys_of_plan else ()
        room_reservations = tuple(
            reservation
            for reservation in room_reservations
            if (reservation.metadata.namespace, reservation.metadata.name) in keys_of_plan
        )
        if report is not None:
            _write_report(client, stored_plan, report, context, price)
    if output.for_people:
        _print(render_stored_plan(stored_plan, SystemClock().now(), price), room_reservations)
    else:
        write_objects(MIGRATION_PLANS, [stored_plan], describe_stored_plan(stored_plan), output)


@click.command("approve", cls=OwnCommand)
@_plan_argument(_waits_for_approval)
@cluster_options
@click.option(
    "--uid", metavar="UID", help="The plan that was looked at, by its uid; default: what `berth show` printed last."
)
@wait_options("the plan is over", "30m")
@objects_output_option
def approve_command(
    *,
    plan: str,
    kubeconfig: str | None,
    context: str | None,
    uid: str | None,
    wait: bool,
    timeout: str,
    output: Output,
) -> int:
    """Approve a plan that waits for approval, as `berth show` printed it.

    A plan that was made anew under its name since then is not approved. With --wait, exit code 1 if it did not all go
    as planned.
    """
    seconds = duration_option({"timeout": timeout}, "timeout")
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-approve") as client:
        looked_at = _as_shown(client, plan) if uid is None else LookedAt(uid=_required_uid(uid))
        ask = partial(approve, looked_at=looked_at)
        approved_plan = _ask(client, plan, ask, said="is approved", wait_seconds=seconds if wait else None)
    return show_after_request(approved_plan, output, waited=wait)


@click.command("abort", cls=OwnCommand)
@_plan_argument(_may_be_aborted)
@cluster_options
@wait_options("the plan is over", "5m")
@objects_output_option
def abort_command(
    *, plan: str, kubeconfig: str | None, context: str | None, wait: bool, timeout: str, output: Output
) -> int:
    """End a plan safely: nothing new is begun, and what is reserved but not evicted is released."""
    seconds = duration_option({"timeout": timeout}, "timeout")
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-abort") as client:
        aborting_plan = _ask(client, plan, abort, said="is being aborted", wait_seconds=seconds if wait else None)
    show_after_request(aborting_plan, output, waited=wait)
    return 0


@contextmanager
def explaining_not_found(argument: str, name: str | None, listed_by: str) -> Iterator[None]:
    """Raise a 404 of the block as an `InputError` about the name, or about a cluster without Berth's CRDs."""
    try:
        yield
    except NotFoundError as error:
        if name is None:
            raise InputError("cluster", error.call.target, "one with Berth's CRDs", said="one without them") from error
        raise InputError(argument, name, f"a name that `{listed_by}` lists") from error


def build_waiter(client: KubeClient, seconds: float, clock: Clock | None = None) -> PlanWaiter:
    return PlanWaiter(client, clock or SystemClock(), Terminal(stderr=True), seconds)


def show_after_request(plan: MigrationPlan, output: Output, *, waited: bool) -> int:
    """Show a plan after a request and return the exit code: 1 if the plan is over and not all landed."""
    if not output.for_people:
        write_objects(MIGRATION_PLANS, [plan], describe_stored_plan(plan), output)
    elif waited:
        output_console().print(f"{plan.phase.value}: {plan.status.message}", highlight=False, markup=False)
        if advice := what_to_do(plan):
            write_notice(advice)
    return _FAILED if plan.phase in {PlanPhase.PARTIAL, PlanPhase.FAILED, PlanPhase.ABORTED} else 0


def _ask(
    client: KubeClient,
    plan: str,
    ask: Callable[[KubeClient, str], MigrationPlan],
    *,
    said: str,
    wait_seconds: float | None,
) -> MigrationPlan:
    """Make a request about a plan and return the plan, after its end if there is time to wait."""
    with explaining_not_found("PLAN", plan, "berth plans"):
        if wait_seconds is not None and ask is not abort and _is_for_service(_get(client, plan)):
            refuse_without_service(client, "nothing was approved")
        asked_plan = ask(client, plan)
    write_notice(f"plan {plan} {said}")
    if wait_seconds is None:
        return asked_plan
    if ask is abort and _is_for_service(asked_plan):
        refuse_without_service(client, "the plan ends when one is there")
    return build_waiter(client, wait_seconds).wait_until_over(plan)


def _as_shown(client: KubeClient, name: str) -> LookedAt:
    """Return a plan as it was shown here last; raises `InputError` if it never was, or cannot be approved anyway."""
    if (looked_at := recall(client.server_url, name)) is not None:
        return looked_at
    refuse_approval(_get(client, name))
    raise InputError(
        "--uid",
        None,
        f"`berth show {name}` before, or the uid of the plan that was looked at",
        said=f"not given, and `berth show` has not printed plan {name} here",
    )


def _required_uid(uid: str) -> str:
    if not uid.strip():
        raise InputError("--uid", uid, "the uid of the plan that was looked at")
    return uid.strip()


def _is_for_service(plan: MigrationPlan) -> bool:
    """Return whether a plan is the service's to carry out or to end; `berth run` does so with its own plans."""
    return plan.spec.mode is not None and not plan.phase.terminal


def refuse_without_service(client: KubeClient, consequence: str) -> None:
    """Raise `WaitTimeoutError` where no service is at work, so that waiting would be in vain."""
    if why := why_absent(client, SystemClock(), SERVICE, namespace=None, report=write_notice):
        raise WaitTimeoutError(f"{why}; {consequence}")


def _list(client: KubeClient, selector: str = "") -> tuple[MigrationPlan, ...]:
    with explaining_not_found("PLAN", None, "berth plans"):
        return newest_first(client.list(MIGRATION_PLANS, label_selector=selector, type=MigrationPlan).items)


def _kept_for_jobs(client: KubeClient) -> tuple[Reservation, ...]:
    """Return the Reservations for starving jobs; none where they may not be read."""
    with suppress(KubeError):
        raw_reservations = client.list(RESERVATIONS, label_selector=STARVING_JOB_LABEL).items
        return tuple(map(Reservation.read, raw_reservations))
    return ()


def _print(plans: RenderableType, kept: Sequence[Reservation]) -> None:
    console = output_console()
    console.print(plans)
    if (table := render_waiting_rooms(kept, SystemClock().now())) is not None:
        console.print(table)


def _get(client: KubeClient, plan: str) -> MigrationPlan:
    with explaining_not_found("PLAN", plan, "berth plans"):
        return client.get(MIGRATION_PLANS, plan, type=MigrationPlan)


def _newest(client: KubeClient) -> MigrationPlan:
    plans = _list(client)
    if not plans:
        raise InputError("PLAN", None, "the name of a plan", said="not given, and there is none in the cluster")
    return plans[0]


def _write_report(
    client: KubeClient, plan: MigrationPlan, report: ReportFile, context: str | None, price: Mapping[str, float]
) -> None:

    occasion = Occasion(SystemClock().now(), f"Live cluster{f', context {context}' if context else ''}")
    report.write(stored_plan_page(plan, read_capacity(client), occasion, price))


def write_objects(
    resource: Resource, objects: Iterable[MigrationPlan | DeschedulerPolicy], described: object, output: Output
) -> None:
    """Write objects for machines: what describes them, or their names as `kubectl get --output name` does."""
    if output is not Output.NAME:
        write_described(described, output)
        return
    write_names(resource.name_for_kubectl, (shown_object.metadata.name for shown_object in objects))
