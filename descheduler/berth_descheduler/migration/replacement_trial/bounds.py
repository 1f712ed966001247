"""Whether the ServiceAccount that tries replacements is held to dry runs.

RBAC cannot tell a dry run from a creation; an admission policy can. So the account's right to create pods is used only
where the policy and its binding are there, deny, and leave no pod out. `berth doctor` asks the same.
"""

from collections.abc import Mapping
from typing import Final

from berth_core import REPLACEMENT_TRIAL, PermanentError
from berth_core.object_lists import RawObject
from berth_kube import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS, KubeClient, NotFoundError

DRY_RUNS_ONLY: Final = "has(request.dryRun) && request.dryRun"
"""The policy's validation; `request.dryRun` is absent where a request does not say."""

_PODS: Final = (("apiGroups", ""), ("apiVersions", "v1"), ("operations", "CREATE"), ("resources", "pods"))


def trial_user(namespace: str) -> str:
    """Return the API server's user name of the account, for Berth in a namespace."""
    return f"system:serviceaccount:{namespace}:{REPLACEMENT_TRIAL}"


def why_not_bounded(client: KubeClient, namespace: str) -> str:
    """Return why the account may do more than dry runs, "" if it may not.

    Raises `RetryableError` where that could not be read.
    """
    for resource in (ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS):
        try:
            raw = client.get(resource, REPLACEMENT_TRIAL)
        except NotFoundError:
            return f"there is no {resource.kind} {REPLACEMENT_TRIAL}"
        except PermanentError as error:
            return str(error)
        is_policy = resource is ADMISSION_POLICIES
        if reason := why_policy_lets_through(raw, namespace) if is_policy else why_binding_lets_through(raw):
            return reason
    return ""


def why_policy_lets_through(policy: RawObject, namespace: str) -> str:
    """Return how pods could be created in spite of a policy, "" if they could not.

    Further validations only deny more; further match conditions would let requests through.
    """
    spec = policy.get("spec") or {}
    constraints = spec.get("matchConstraints") or {}
    conditions = [condition.get("expression") for condition in spec.get("matchConditions") or ()]
    wanted_conditions = [f"request.userInfo.username == '{trial_user(namespace)}'"]
    validations = [validation.get("expression") for validation in spec.get("validations") or ()]
    gaps = {
        "its failurePolicy is not Fail": spec.get("failurePolicy") != "Fail",
        # With parameters a missing object may let requests through (`parameterNotFoundAction: Allow`, KEP-3488).
        "it has a paramKind": bool(spec.get("paramKind")),
        "its matchConstraints leave pods out": not _covers_all_pods(constraints),
        f"its matchConditions are not for {trial_user(namespace)} alone": conditions != wanted_conditions,
        f"it does not ask for `{DRY_RUNS_ONLY}`": DRY_RUNS_ONLY not in validations,
    }
    return _joined("ValidatingAdmissionPolicy", gaps)


def why_binding_lets_through(binding: RawObject) -> str:
    """Return how pods could be created in spite of the policy's binding, "" if they could not."""
    spec = binding.get("spec") or {}
    gaps = {
        "it is for another policy": spec.get("policyName") != REPLACEMENT_TRIAL,
        # `Warn` and `Audit` alone let the request through.
        "it does not Deny": "Deny" not in (spec.get("validationActions") or ()),
        "it has a paramRef": bool(spec.get("paramRef")),
        "its matchResources leave pods out": not _leaves_nothing_out(spec.get("matchResources") or {}),
    }
    return _joined("ValidatingAdmissionPolicyBinding", gaps)


def _joined(kind: str, gaps: Mapping[str, bool]) -> str:
    problems = [problem for problem, is_there in gaps.items() if is_there]
    if not problems:
        return ""
    return f"the {kind} {REPLACEMENT_TRIAL} does not hold its account to dry runs: {', '.join(problems)}"


def _covers_all_pods(constraints: RawObject) -> bool:
    rules = constraints.get("resourceRules") or ()
    return _selects_everything(constraints) and any(map(_covers_pods, rules))


def _covers_pods(rule: RawObject) -> bool:
    is_covered = all(wanted in (rule.get(field) or ()) or "*" in (rule.get(field) or ()) for field, wanted in _PODS)
    return is_covered and not rule.get("resourceNames") and rule.get("scope") in {None, "*", "Namespaced"}


def _leaves_nothing_out(resources: RawObject) -> bool:
    """Return whether a binding's `matchResources` narrow nothing; rules of its own would."""
    return _selects_everything(resources) and not resources.get("resourceRules")


def _selects_everything(resources: RawObject) -> bool:
    return not any(resources.get(field) for field in ("namespaceSelector", "objectSelector", "excludeResourceRules"))
