"""The packaged chart, as a release pushes it, is the chart of the repository."""

from pathlib import Path

import release
from chart.charted import OLDEST_KUBERNETES, RELEASE, Helm
from conventions.generate_copies import CHART


def test_the_package_renders_as_the_folder_does(helm: Helm, tmp_path: Path) -> None:
    package = release.package_chart(tmp_path, str(helm.command))
    wanted = ("--include-crds", "--kube-version", OLDEST_KUBERNETES)
    assert helm.run("template", RELEASE, str(package), *wanted) == helm.run("template", RELEASE, str(CHART), *wanted)
