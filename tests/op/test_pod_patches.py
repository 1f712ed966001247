"""The patches of owner pods change what they say, test what they meet, and touch nothing of others."""

from dataclasses import dataclass

import msgspec
import pytest

from berth_core import Pod, Toleration
from berth_core.labels import HANDOVER_GATE, HANDOVER_LABEL, HANDOVER_TAINT, RESERVATION_LABEL, SLOT_ANNOTATION
from berth_operator.reservation.pod_patches import (
    Operations,
    build_assignment,
    build_extension,
    build_move,
    build_release,
    build_ungating,
    build_unlabelling,
)
from builders import as_api, pod
from handover_builders import DEADLINE, PLACE_UID, at_version, note, owner_pod, place, placeholder
from json_patches import apply

OTHER_GATE = "example.com/wait"


def patched(operations: Operations, one: Pod) -> Pod:
    return msgspec.convert(apply(operations, as_api(one)), Pod)


def gates(one: Pod) -> list[str]:
    return [gate.name for gate in one.spec.scheduling_gates]


@dataclass(frozen=True, kw_only=True)
class Case:
    before: Pod
    want_gates: list[str]


OWNERS = {
    "only ours": Case(before=owner_pod(given=note()), want_gates=[]),
    "ours first": Case(before=owner_pod(given=note(), gates=(HANDOVER_GATE, OTHER_GATE)), want_gates=[OTHER_GATE]),
    "ours last": Case(before=owner_pod(given=note(), gates=(OTHER_GATE, HANDOVER_GATE)), want_gates=[OTHER_GATE]),
}


@pytest.mark.parametrize("case", OWNERS.values(), ids=OWNERS.keys())
def test_ungating_takes_our_gate_and_no_other(case: Case) -> None:
    after = patched(build_ungating(case.before), case.before)
    assert gates(after) == case.want_gates
    assert after.metadata == case.before.metadata


@pytest.mark.parametrize("case", OWNERS.values(), ids=OWNERS.keys())
def test_a_release_takes_gate_label_and_note_in_one_step(case: Case) -> None:
    after = patched(build_release(case.before), case.before)
    assert gates(after) == case.want_gates
    assert after.metadata.labels == {"app": "web"}
    assert after.metadata.annotations == {}
    assert after.spec.tolerations == case.before.spec.tolerations


def test_unlabelling_takes_label_and_note_and_leaves_the_gate() -> None:
    before = owner_pod(given=note())
    after = patched(build_unlabelling(before), before)
    assert (after.metadata.labels, after.metadata.annotations, gates(after)) == ({"app": "web"}, {}, [HANDOVER_GATE])


ASSIGNED = {
    "a pod with neither annotations nor tolerations": owner_pod(),
    "a pod with annotations and tolerations": pod(
        labels={"app": "web", RESERVATION_LABEL: PLACE_UID},
        annotations={"team": "shop"},
        tolerations=[Toleration(key="gpu", operator="Exists")],
    ),
}


@pytest.mark.parametrize("before", ASSIGNED.values(), ids=ASSIGNED.keys())
def test_an_assignment_adds_the_note_and_the_toleration(before: Pod) -> None:
    after = patched(build_assignment(before, note(), place()), before)
    assert after.metadata.annotations == before.metadata.annotations | {SLOT_ANNOTATION: note().to_annotation()}
    assert after.metadata.labels == before.metadata.labels | {HANDOVER_LABEL: "true"}
    assert after.spec.tolerations == (
        *before.spec.tolerations,
        Toleration(key=HANDOVER_TAINT, operator="Exists", effect="NoSchedule"),
    )
    assert gates(after) == gates(before)


def test_an_extension_changes_the_note_that_is_there_and_no_other() -> None:
    before = owner_pod(given=note())
    later = note(deadline=DEADLINE + 60)
    operations = build_extension(before, later)
    assert patched(operations, before).metadata.annotations == {SLOT_ANNOTATION: later.to_annotation()}
    by_an_older = owner_pod(given=note(), labels={"app": "web", RESERVATION_LABEL: PLACE_UID})
    assert patched(build_extension(by_an_older, later), by_an_older).metadata.labels == before.metadata.labels
    with pytest.raises(LookupError):
        apply(operations, as_api(owner_pod(given=later)))


WAITED = {
    "with labels": at_version(pod(labels={"app": "web"}), "7"),
    "without labels": at_version(pod(), "7"),
}


@pytest.mark.parametrize("before", WAITED.values(), ids=WAITED.keys())
def test_a_pod_that_was_not_gated_gets_the_label_with_its_slot(before: Pod) -> None:
    operations = build_assignment(before, note(), place())
    assert patched(operations, before).metadata.labels == before.metadata.labels | {
        RESERVATION_LABEL: PLACE_UID,
        HANDOVER_LABEL: "true",
    }
    with pytest.raises(LookupError):
        apply(operations, as_api(at_version(before, "8")))


def test_a_gated_pod_is_sent_to_another_reservation_and_stays_gated() -> None:
    before = owner_pod()
    after = patched(build_move(before, "uid-of-another"), before)
    assert after.metadata.labels[RESERVATION_LABEL] == "uid-of-another"
    assert gates(after) == gates(before)


def test_a_placeholder_that_has_taken_over_loses_its_note_and_stays_its_reservation_s() -> None:
    before = placeholder()
    notes = before.metadata.annotations | {SLOT_ANNOTATION: note().to_annotation()}
    labels = before.metadata.labels | {HANDOVER_LABEL: "true"}
    meta = msgspec.structs.replace(before.metadata, annotations=notes, labels=labels)
    before = msgspec.structs.replace(before, metadata=meta)
    assert patched(build_unlabelling(before), before) == placeholder()


NOTHING = {
    "no gate of ours": build_ungating(pod(gates=[OTHER_GATE])),
    "neither label nor note": build_unlabelling(pod(labels={"app": "web"})),
    "nothing of ours at all": build_release(pod()),
}


@pytest.mark.parametrize("operations", NOTHING.values(), ids=NOTHING.keys())
def test_where_there_is_nothing_to_take_off_nothing_is_sent(operations: Operations) -> None:
    assert operations == []


BUILT = {
    "assignment": build_assignment(owner_pod(), note(), place()),
    "assignment of a pod that waited": build_assignment(at_version(pod("web-0"), "7"), note(), place()),
    "move": build_move(owner_pod(), "uid-of-another"),
    "ungating": build_ungating(owner_pod()),
    "unlabelling": build_unlabelling(owner_pod()),
    "release": build_release(owner_pod()),
    "release of a pod without our gate": build_release(owner_pod(gates=())),
    "release of a pod without our label": build_release(owner_pod(labels={})),
}


@pytest.mark.parametrize("operations", BUILT.values(), ids=BUILT.keys())
def test_every_patch_refuses_another_pod_of_the_same_name(operations: Operations) -> None:
    with pytest.raises(LookupError):
        apply(operations, as_api(pod("web-0", uid="another", labels={RESERVATION_LABEL: "x"}, gates=[HANDOVER_GATE])))


def test_ungating_refuses_a_pod_whose_gates_have_changed_since() -> None:
    operations = build_ungating(owner_pod(gates=(OTHER_GATE, HANDOVER_GATE)))
    with pytest.raises(LookupError):
        apply(operations, as_api(owner_pod(gates=(HANDOVER_GATE, OTHER_GATE))))
