"""The workflows can be read, take actions by commit, have few rights, and call what is there."""

import re
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

import release
from conventions.tracked import ROOT

FOLDER: Final = ROOT / ".github" / "workflows"
FORMS: Final = ROOT / ".github" / "ISSUE_TEMPLATE"
FILES: Final = {path.name: path for path in sorted(FOLDER.glob("*.yml"))}
WORKFLOWS: Final[dict[str, dict[str, Any]]] = {
    name: yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506 - leaves `on` a word
    for name, path in FILES.items()
}
EVERY: Final = pytest.mark.parametrize("name", WORKFLOWS)


def steps(name: str) -> Iterator[dict[str, Any]]:
    for job in WORKFLOWS[name]["jobs"].values():
        yield from job.get("steps", [])


def scripts(name: str) -> list[str]:
    return [step["run"] for step in steps(name) if "run" in step]


def test_there_are_workflows_for_tests_for_the_site_and_for_releases() -> None:
    assert set(WORKFLOWS) == {"release.yml", "site.yml", "test.yml"}
    assert WORKFLOWS["release.yml"]["on"] == {"push": {"tags": ["v*"]}}
    assert WORKFLOWS["release.yml"]["jobs"]["tests"] == {"uses": "./.github/workflows/test.yml"}
    assert "workflow_call" in WORKFLOWS["test.yml"]["on"]
    assert ".ci/run" in scripts("test.yml")


def test_nothing_is_published_before_the_tests_have_passed() -> None:
    jobs = WORKFLOWS["release.yml"]["jobs"]
    before = {name: job.get("needs", "") for name, job in jobs.items()}
    first = {"tests": "", "versions": ""}
    assert before == first | {"package": ["tests", "versions"], "images": "package", "publish": "images"}


@EVERY
def test_actions_are_taken_by_commit_with_the_version_beside(name: str) -> None:
    lines = [line.strip() for line in FILES[name].read_text(encoding="utf-8").splitlines() if "uses: " in line]
    others = [line for line in lines if "uses: ./" not in line]
    assert others
    assert not [line for line in others if not re.fullmatch(r"- uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v[\d.]+", line)]


def test_newer_commits_of_the_actions_and_newer_packages_are_proposed() -> None:
    proposals = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))["updates"]
    assert [one["package-ecosystem"] for one in proposals] == ["github-actions", "pip"]


def test_the_forms_of_the_tracker_ask_for_something() -> None:
    forms = {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in FORMS.glob("*.yml")}
    settings = forms.pop("config.yml")
    assert settings["blank_issues_enabled"] is False
    for name, form in forms.items():
        assert form["name"], name
        assert form["description"], name
        asked = [field for field in form["body"] if field["type"] != "markdown"]
        assert all(field["attributes"]["label"] for field in asked)
        assert len({field["id"] for field in asked}) == len(asked)
        assert any(field.get("validations", {}).get("required") for field in asked)


def test_an_action_has_one_version_in_all_workflows() -> None:
    used = {step["uses"] for name in WORKFLOWS for step in steps(name) if "uses" in step}
    assert len({one.partition("@")[0] for one in used}) == len(used)


@EVERY
def test_a_workflow_may_read_and_a_job_says_what_it_writes(name: str) -> None:
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] == {"contents": "read"}
    given = {
        job: set(found["permissions"].items()) for job, found in workflow["jobs"].items() if "permissions" in found
    }
    wanted = {
        "release.yml": {
            "images": {("contents", "read"), ("id-token", "write")},
            "publish": {("contents", "write"), ("id-token", "write")},
        },
        "site.yml": {"publish": {("pages", "write"), ("id-token", "write")}},
    }
    assert given == wanted.get(name, {})


@EVERY
def test_jobs_have_an_end_and_checkouts_keep_no_token(name: str) -> None:
    for job in WORKFLOWS[name]["jobs"].values():
        assert "uses" in job or int(job["timeout-minutes"]) <= 120
    for step in steps(name):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] == "false"


@EVERY
def test_scripts_are_shell_and_take_no_text_of_others(name: str) -> None:
    assert WORKFLOWS[name]["defaults"] == {"run": {"shell": "bash"}}
    for script in scripts(name):
        assert "${{" not in script
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@EVERY
def test_scripts_of_the_repository_that_are_called_are_there(name: str) -> None:
    called = {word for script in scripts(name) for word in re.findall(r"(?<!\S)\.ci/[\w.-]+", script)}
    assert called
    assert not [word for word in called if not (ROOT / word).stat().st_mode & 0o111]


def test_the_script_of_the_release_knows_what_it_is_called_with() -> None:
    lines = [line for script in scripts("release.yml") for line in script.splitlines() if "release.py" in line]
    asked = []
    for line in lines:
        words = line.replace('"', "").partition("release.py ")[2].split(" >")[0].split(" |")[0].split()
        asked.append(release.parse(words).command)
    assert asked == ["check", "notes", "chart", "plugin", "images", "push-chart"]


def test_settings_come_from_the_repository_alone() -> None:
    texts = "\n".join(path.read_text(encoding="utf-8") for path in FILES.values())
    assert set(re.findall(r"\$\{\{ (?:vars|secrets)\.(\w+) \}\}", texts)) == {
        *("REGISTRY", "PYTHON_BASE", "REGISTRY_USER", "REGISTRY_PASSWORD")
    }
