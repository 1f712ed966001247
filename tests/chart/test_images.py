"""The Dockerfiles copy what is there, run as the chart says, and change no more layers than they must.

No image is built here: that needs a daemon and a registry.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.charted import SERVICES, Helm, container, find
from conventions.generate_copies import CHART
from conventions.tracked import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BUILD: dict[str, Any] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]

Step = tuple[str, str]


def read_steps(service: str) -> list[Step]:
    """Return the instructions of a Dockerfile with their arguments, continued lines joined."""
    text = (ROOT / service / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def stages(service: str) -> list[list[Step]]:
    found: list[list[Step]] = []
    for step in read_steps(service):
        if step[0] == "FROM":
            found.append([])
        if found:
            found[-1].append(step)
    return found


def copied(steps: list[Step]) -> list[str]:
    """Return what is copied from the repository."""
    copies = [rest.split() for word, rest in steps if word == "COPY" and not rest.startswith("--from")]
    return [source for arguments in copies for source in arguments[:-1]]


def sent_to_the_builder(source: str) -> bool:
    allowed = [
        line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")
    ]
    return any(source == entry or source.startswith(f"{entry}/") for entry in allowed)


@pytest.mark.parametrize("service", SERVICES)
def test_what_is_copied_exists_and_is_sent_to_the_builder(service: str) -> None:
    sources = copied(read_steps(service))
    assert sources
    assert not [source for source in sources if not (ROOT / source).exists() or not sent_to_the_builder(source)]


@pytest.mark.parametrize("service", SERVICES)
def test_everything_that_the_wheel_is_made_of_is_copied(service: str) -> None:
    needed = [*BUILD["packages"], *BUILD["force-include"], PROJECT["project"]["readme"], "LICENSE", "pyproject.toml"]
    sources = copied(read_steps(service))
    assert not [path for path in needed if not any(Path(path).is_relative_to(source) for source in sources)]


@pytest.mark.parametrize("service", SERVICES)
def test_the_program_comes_after_what_it_needs_in_layers_of_its_own(service: str) -> None:
    dependencies, program, image = stages(service)
    assert set(copied(dependencies)) == {f"{service}/requirements.lock"}
    assert not set(copied(program)) & set(copied(dependencies))
    assert [rest for word, rest in image if word == "COPY"] == [
        "--from=dependencies /opt/python /opt/python",
        "--from=program /opt/berth /opt/berth",
    ]
    assert not [rest for word, rest in image if word == "RUN"]


@pytest.mark.parametrize("service", SERVICES)
def test_the_base_is_one_release_of_python(service: str) -> None:
    (base,) = [rest.partition("=")[2] for word, rest in read_steps(service) if word == "ARG" and "=" in rest]
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", base)
    assert "Programming Language :: Python :: " + base[7:11] in PROJECT["project"]["classifiers"]
    assert [stage[0][1].split()[0] for stage in stages(service)] == ["${PYTHON}", "dependencies", "${PYTHON}"]


def test_both_images_have_the_same_base() -> None:
    assert len({rest for service in SERVICES for word, rest in read_steps(service) if rest.startswith("PYTHON=")}) == 1


@pytest.mark.parametrize("service", SERVICES)
def test_what_comes_from_an_index_is_installed_by_its_hash(service: str) -> None:
    installs = [rest for word, rest in read_steps(service) if word == "RUN" and "pip install" in rest]
    assert len(installs) == 3
    assert all("--require-hashes" in text or "--no-deps" in text for text in installs)


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_runs_the_program_as_the_user_that_the_chart_names(helm: Helm, service: str) -> None:
    last = stages(service)[-1]
    manifests = helm.render({})
    pod = find(manifests, "Deployment", f"berth-{service}")["spec"]["template"]["spec"]
    (user,) = [rest for word, rest in last if word == "USER"]
    assert user == f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    (program,) = [yaml.safe_load(rest) for word, rest in last if word == "ENTRYPOINT"]
    assert program == container(manifests, service)["command"]
    assert program[0] in PROJECT["project"]["scripts"]


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_takes_nothing_but_files_of_the_repository_and_packages_of_the_lock(service: str) -> None:
    steps = read_steps(service)
    assert {word for word, _ in steps} == {"ARG", "FROM", "WORKDIR", "ENV", "RUN", "COPY", "USER", "ENTRYPOINT"}
    assert not [rest for word, rest in steps if word == "RUN" and re.search(r"curl|wget|apt|git|https?:", rest)]


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_starts_its_program_as_no_root_and_through_no_shell(service: str) -> None:
    last = dict(stages(service)[-1])
    user, _, group = last["USER"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert last["ENTRYPOINT"].startswith("[")


@pytest.mark.parametrize("service", SERVICES)
def test_what_is_installed_can_be_dated_so_that_two_builds_are_the_same(service: str) -> None:
    *building, _ = stages(service)
    for stage in building:
        words = [word for word, _ in stage]
        assert stage[words.index("ARG")] == ("ARG", "SOURCE_DATE_EPOCH")
        assert words.index("ARG") < words.index("RUN")


@pytest.mark.parametrize("service", SERVICES)
def test_nothing_is_written_to_the_root_at_run_time(service: str) -> None:
    environment = " ".join(rest for word, rest in stages(service)[-1] if word == "ENV")
    assert "PYTHONDONTWRITEBYTECODE=1" in environment.split()


def test_the_descheduler_returns_memory_page_by_page() -> None:
    """What a run leaves behind is spread over mebibytes that Python's own allocator returns only as a whole."""
    environment = " ".join(rest for word, rest in stages("descheduler")[-1] if word == "ENV")
    assert "PYTHONMALLOC=malloc" in environment.split()


def test_the_images_have_the_names_of_the_chart() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    version = PROJECT["project"]["version"]
    for service in SERVICES:
        head = (ROOT / service / "Dockerfile").read_text(encoding="utf-8")
        assert f"-f {service}/Dockerfile -t {values[service]['image']}:{version} ." in head
