import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pytest

from conventions.tracked import ROOT, python_files, shown, text_files, tracked_files

COMPONENTS: Final = ("descheduler", "operator", "shared")
NAMES_THAT_SAY_NOTHING: Final = frozenset({"utils", "util", "helpers", "helper", "common", "types", "misc"})


def test_module_names_say_what_is_inside() -> None:
    assert not [shown(path) for path in python_files() if path.stem in NAMES_THAT_SAY_NOTHING]


@pytest.mark.parametrize("folder", [*COMPONENTS, "tests"])
def test_a_folder_of_the_repository_is_no_package(folder: str) -> None:
    inits = [path.relative_to(ROOT) for path in tracked_files() if path.name == "__init__.py"]
    depth = {"tests": 99}.get(folder, 2)
    assert not [path.as_posix() for path in inits if path.parts[0] == folder and len(path.parts) <= depth]


def test_no_test_folder_is_named_after_the_operator() -> None:
    assert not (ROOT / "tests" / "operator").exists()


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in python_files() if path.name.startswith("test_")]
    assert len(names) == len(set(names))


def test_operator_is_the_standard_librarys() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", "import operator; print(operator.__file__)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(answer.stdout.strip()).resolve().parent == Path(sysconfig.get_path("stdlib")).resolve()


def test_only_the_contract_reads_which_nodes_a_slot_may_be_on() -> None:
    readers = [p for p in python_files() if p.relative_to(ROOT).parts[0] in COMPONENTS and _reads_allowed_nodes(p)]
    assert [shown(path) for path in readers] == ["shared/berth_core/reservations.py"]


def _reads_allowed_nodes(path: Path) -> bool:
    return "reservation_node_names" in path.read_text(encoding="utf-8")


INVENTED_NAMES: Final = (
    r"\b_?(?:AttendedTime|Bells|Book|CapacityDesk|CertificateKeeper|Clerk|Crew|Desk|Engine|Graves|GuardKeeper|Kinship|"
    r"LastWord|MoveKeeper|NobodyEndedItError|NodeBook|Office|OperatorPulse|OrphanKeeper|OwnStatuses|Passage|"
    r"PatientProtocol|Performer|PlanReview|PodShelf|ProofBook|RoomKeeper|Seeker|SeenObjects|Setbacks|ShortMemory|"
    r"ReplicaTally|RoomTerms|Siblings|Surroundings|Unobserved|Vigil|WaveGate|Workshop|homeless|astray|barred_nodes|"
    r"frees_first|hear_let_go|hear_reservation|hear_signal|is_barred|keep_what_was_computed|let_be|lose_patience|"
    r"patience_left|read_anew|things_left_behind|why_nobody_holds|wind_down)\b"
)
RITUAL_WORDS: Final = re.compile(r'"""Owns |\b[Ii]t does not own\b|\b[Tt]ell whether\b')

PLAINLY_WORDED: Final = ("crds/", "descheduler/", "helm/", "operator/", "shared/", "README.md")
TRANSLATED_WORDS: Final = re.compile(r"\b(?:somebody|nobody|anybody|(?:is|are) to be)\b", re.IGNORECASE)
PUBLIC_NAMES: Final = ("status was changed by somebody else, corrected",)  # a log event, which dashboards know


def test_names_are_those_of_the_field() -> None:
    assert not [
        f"{shown(path)}: {found}"
        for path in python_files()
        if path.relative_to(ROOT).parts[0] in COMPONENTS
        for found in sorted(set(re.findall(INVENTED_NAMES, path.read_text(encoding="utf-8"))))
    ]


def test_docstrings_say_what_a_thing_is_for() -> None:
    this = Path(__file__).resolve()
    assert not [
        f"{shown(path)}: {found}"
        for path in python_files()
        if path.resolve() != this
        for found in RITUAL_WORDS.findall(path.read_text(encoding="utf-8"))
    ]


def test_texts_are_worded_as_the_field_writes_them() -> None:
    assert not [
        f"{shown(path)}: {found}"
        for path, text in text_files()
        if shown(path).startswith(PLAINLY_WORDED)
        for found in TRANSLATED_WORDS.findall(_in_one_line(text))
    ]


def _in_one_line(text: str) -> str:
    line = " ".join(text.replace("#", " ").split())
    for name in PUBLIC_NAMES:
        line = line.replace(name, "")
    return line
