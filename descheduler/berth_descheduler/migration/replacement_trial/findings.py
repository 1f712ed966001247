"""What `berth doctor` says of the account that tries replacements: whether it is used, and what is amiss with it."""

from collections.abc import Iterator

from berth_core import REPLACEMENT_TRIAL, PermanentError
from berth_descheduler.migration.replacement_trial.bounds import why_not_bounded
from berth_kube import SERVICE_ACCOUNTS, KubeClient, NotFoundError
from berth_sandbox.invariants import Invariant, Violation


def find_unbounded_account(client: KubeClient, own_namespace: str) -> Iterator[Violation]:
    """Yield why an account that exists is not held to dry runs; without the account the trial is switched off."""
    if _why_no_account(client, own_namespace):
        return
    if reason := why_not_bounded(client, own_namespace):
        yield Violation(Invariant.TRIAL_UNBOUNDED, f"serviceaccount {own_namespace}/{REPLACEMENT_TRIAL}", reason)


def why_not_tried(client: KubeClient, own_namespace: str) -> str:
    """Return why replacements are not tried by dry run, "" if they are."""
    return _why_no_account(client, own_namespace) or why_not_bounded(client, own_namespace)


def _why_no_account(client: KubeClient, own_namespace: str) -> str:
    try:
        client.get(SERVICE_ACCOUNTS, REPLACEMENT_TRIAL, namespace=own_namespace)
    except NotFoundError:
        return f"there is no {SERVICE_ACCOUNTS.kind} {own_namespace}/{REPLACEMENT_TRIAL}"
    except PermanentError as error:
        return str(error)
    return ""
