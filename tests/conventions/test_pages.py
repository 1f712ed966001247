"""What the pages name exists: options, metrics, links, packages."""

import re
from collections.abc import Iterator
from itertools import chain
from typing import Final

import click

from berth_core.migration_plans import MoveReason, MoveState
from berth_core.reservations import ReservationPhase, ReservationReason
from berth_descheduler.cli.main import berth
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.planner.autoscalers.marks import MARKS
from berth_descheduler.plugins import default_evictor_args
from berth_descheduler.plugins import defragmentation as arguments
from berth_descheduler.server import serve
from berth_operator.cli import main as operator
from berth_sandbox.invariants import Invariant
from conventions.generate_copies import copied_files
from conventions.pages import PAGES, anchors, links, names, prose, rows
from conventions.reference_pages import DESCHEDULER_PAGE, OPERATOR_PAGE
from conventions.tracked import ROOT, shown, tracked_files

GENERATED: Final = frozenset(copied_files())
WRITTEN: Final = [page for page in PAGES if page not in GENERATED and page.name != "CHANGELOG.md"]
OPTIONS_OF_OTHERS: Final = {
    *("--all-namespaces", "--for", "--create-namespace", "--force", "--overwrite", "--set", "--tail", "--type"),
    *("--clusterrole", "--data", "--duration", "--group", "--resource", "--serviceaccount", "--subresource", "--verb"),
    *("--patch-file", "--data-urlencode", "--dry-run", "--from-env-file", "--server-side"),
}
"""kubectl's, helm's and curl's, in examples."""
OPTIONS_OF_INSTALLERS: Final = {"--archive", "--entrypoint", "--manifest", "--no-compile", "--rm", "--user"}
"""krew's, docker's and pip's."""
OPTIONS_OF_BACKUPS: Final = {"--bump-revision", "--exclude-resources", "--mark-compacted"}
"""etcdutl's and velero's."""
OPTIONS_OF_CLOUDS: Final = {
    *("--action", "--direction", "--filter", "--format", "--network", "--rules", "--source-ranges", "--target-tags"),
    *("--group-id", "--port", "--protocol", "--source-group"),
    *("--certificate-identity-regexp", "--certificate-oidc-issuer"),
}
"""gcloud's, aws's and cosign's."""
OPTIONS_OF_THE_RELEASE: Final = {"--dry-run", "--into"}
OPTIONS_OF_BENCHMARKS: Final = {
    *("--after", "--churn", "--live", "--plain", "--rest-only", "--run-only", "--start-seconds")
}
OPTIONS_OF_TUTORIALS: Final = {"--space"}
"""Of the goal that a page adds."""
PROGRAMS: Final = (berth, serve, operator)


def options(command: click.Command) -> Iterator[str]:
    """Yield the options of a command and of all commands below it."""
    context = click.Context(command)
    for parameter in command.get_params(context):
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from options(found)


def test_the_pages_name_options_that_exist() -> None:
    known = (
        OPTIONS_OF_OTHERS
        | OPTIONS_OF_BACKUPS
        | OPTIONS_OF_INSTALLERS
        | OPTIONS_OF_CLOUDS
        | OPTIONS_OF_THE_RELEASE
        | OPTIONS_OF_BENCHMARKS
        | OPTIONS_OF_TUTORIALS
        | {*chain(*map(options, PROGRAMS))}
    )
    for page in WRITTEN:
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text(encoding="utf-8")))
        assert not named - known, shown(page)


def test_the_pages_name_metrics_that_exist() -> None:
    known = names(DESCHEDULER_PAGE) | names(OPERATOR_PAGE)
    packages = {"berth_core", "berth_kube", "berth_service", "berth_sandbox", "berth_descheduler", "berth_operator"}
    for page in WRITTEN:
        named = set(re.findall(r"\b(berth_[a-z_]+)", page.read_text(encoding="utf-8")))
        assert not named - known - packages, shown(page)


def test_links_lead_to_files_and_headings_that_exist() -> None:
    for page in PAGES:
        for link in links(page):
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            assert target.exists(), (shown(page), link)
            assert not anchor or anchor in anchors(target), (shown(page), link)


def test_the_pages_name_files_that_exist() -> None:
    for page in WRITTEN:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"(?<![\w/-])(?:tests|helm/berth|crds)/[\w./-]+\w", text):
            assert (ROOT / name).exists(), (shown(page), name)


def test_tables_have_as_many_cells_in_every_row() -> None:
    for page in PAGES:
        for lines in re.findall(r"(?:^\|.*\n)+", prose(page), re.MULTILINE):
            head, rule, *rows = lines.splitlines()
            assert re.fullmatch(r"(\| ?-+ ?)+\|", rule), (shown(page), head)
            assert {len(re.findall(r"(?<!\\)\|", row)) for row in (rule, *rows)} == {head.count("|")}, (
                shown(page),
                head,
            )


def test_every_page_is_reached_from_the_readme_over_one_other_page_at_most() -> None:
    reached = {ROOT / "README.md"}
    for _ in range(2):
        named = {(page.parent / link.partition("#")[0]).resolve() for page in reached for link in links(page)}
        reached |= {page for page in named if page.suffix == ".md"}
    assert not set(PAGES) - reached


UNNAMED_PACKAGES: Final = ("berth_sandbox.",)
"""The page names the package, not what is in it."""


def test_the_page_on_architecture_names_the_packages_that_exist() -> None:
    named = {name for name in names(ROOT / "shared" / "docs" / "architecture.md") if "berth_" in name}
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts[1:]).removesuffix(".__init__"): path.name == "__init__.py"
        for path in tracked_files()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in {"descheduler", "operator", "shared"}
    }
    assert not named - set(modules)
    packages = {name for name, is_package in modules.items() if is_package and not name.startswith(UNNAMED_PACKAGES)}
    assert not packages - named


def test_the_reference_has_every_option_reason_and_finding() -> None:
    deschedulers, operators = names(DESCHEDULER_PAGE), names(OPERATOR_PAGE)
    flags = {flag for name in deschedulers | operators for flag in re.findall(r"--[a-z-]+", name)}
    wanted = {option for program in (berth, serve, operator) for option in options(program) if option.startswith("--")}
    assert not wanted - flags - {"--help", "--version"}
    assert not {*map(str, RefusalReason), *map(str, MoveState), *map(str, MoveReason)} - {""} - deschedulers
    assert not {*arguments.ARGUMENTS, *default_evictor_args.ARGUMENTS} - deschedulers
    assert not {*map(str, ReservationPhase), *map(str, ReservationReason)} - operators
    assert not {*map(str, Invariant)} - {Invariant.POD_PENDING} - operators


def test_the_page_on_marks_of_autoscalers_has_every_mark_that_is_read() -> None:
    page = ROOT / "descheduler" / "docs" / "autoscalers.md"

    assert rows(page.read_text(encoding="utf-8"), "mark") == [list(mark.row) for mark in MARKS]
