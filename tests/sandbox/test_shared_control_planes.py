"""Control planes that tests share end when the last file that needs one is over, not with the run."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from cluster_fixtures import spend_memory

SUPPORT: Final = Path(__file__).resolve().parents[1] / "support"
CONFTEST: Final = """
import pytest
import shares_of_workers

def pytest_configure(config):
    for marker in ("cluster", "deep"):
        config.addinivalue_line("markers", marker)
    config.pluginmanager.register(shares_of_workers)

@pytest.fixture(scope="session")
def sandbox():
    print("control plane starts")
    yield
    print("control plane ends")

@pytest.fixture(scope="module")
def operator(sandbox):
    print("operator starts")
    yield
    print("operator ends")
"""
FILES: Final = {
    "conftest.py": CONFTEST,
    "test_1.py": """
import pytest

@pytest.mark.cluster
def test_first(sandbox):
    print("first")
""",
    "test_2.py": """
def test_between():
    print("between")
""",
    "test_3.py": """
import pytest

@pytest.mark.cluster
def test_second(operator):
    print("second")

@pytest.mark.cluster
@pytest.mark.deep
def test_deep(operator):
    print("deep")
""",
    "test_4.py": """
def test_without():
    print("without")
""",
    "test_5.py": """
def test_that_asks_by_name(request):
    request.getfixturevalue("operator")
    print("by name")
""",
}


def test_a_control_plane_ends_after_the_last_file_that_needs_it_and_a_test_that_asks_later_gets_another(
    tmp_path: Path,
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    plugins = ("-p", "xdist", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-n", "0", *plugins, "-o", f"pythonpath={SUPPORT}"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, *_ = said = [line.strip(".") for line in done.stdout.splitlines() if line.strip(".") and "[" not in line]
    assert first == "control plane starts"
    assert said[1:-1] == [
        "first",
        "between",
        "operator starts",
        "second",
        "deep",
        "operator ends",
        "control plane ends",
        "without",
        "control plane starts",
        "operator starts",
        "by name",
        "operator ends",
        "control plane ends",
    ]


@pytest.mark.parametrize(
    ("gigabytes", "environ", "want"),
    [
        (7, {}, {}),
        (16, {}, {"GOGC": "400"}),
        (16, {"GOGC": "50"}, {"GOGC": "50"}),
    ],
    ids=["a small machine", "a large machine", "a choice of the user"],
)
def test_control_planes_spend_memory_where_there_is_some(
    gigabytes: int, environ: dict[str, str], want: dict[str, str]
) -> None:
    chosen = dict(environ)

    spend_memory(chosen, gigabytes << 30)

    assert chosen == want
