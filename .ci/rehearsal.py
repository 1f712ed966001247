#!/usr/bin/env python3
"""Make a whole release in a clean folder, and use each part of it as those will who receive it.

    .venv/bin/python .ci/rehearsal.py --into ../rehearsal [--only wheel --only site]

What is committed is cloned; nothing else of the working tree gets in. It makes the source distribution, the wheel,
bills of materials, the chart, the plugin of kubectl with its manifest for krew, and the site. It then installs the
wheel with each Python that the project supports, installs the chart from its package on a sandbox, has the plugin
install itself, serves the site and follows every link, and builds and starts the images with docker or buildah. It
reports what cannot be tried on this machine. Needs berth[dev], git and a package index; the first time a sandbox takes
a quarter of an hour.
"""

import argparse
import hashlib
import html.parser
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urldefrag, urljoin, urlsplit

ROOT: Final = Path(__file__).resolve().parents[1]
PYTHONS: Final = ("3.11", "3.12", "3.13")
SNAPSHOT: Final = Path("tests/data/spread60/snapshot.json.gz")
ADDRESS: Final = "https://forge.example/berth/releases"
HOMEPAGE: Final = "https://forge.example/berth"
TOOLS: Final = ("build", "cyclonedx-bom", "mkdocs-material")


class RehearsalError(Exception):
    """What is wrong with a part of the release."""


class LeftOutError(Exception):
    """Why a part cannot be tried on this machine."""


@dataclass(frozen=True)
class Folders:
    """Where a rehearsal works."""

    into: Path

    @property
    def source(self) -> Path:
        """The clone."""
        return self.into / "source"

    @property
    def parts(self) -> Path:
        """What would be published."""
        return self.into / "parts"

    @property
    def tools(self) -> Path:
        """The environment of the programs that make the parts."""
        return self.into / "tools"

    def part(self, pattern: str) -> Path:
        """Return the one part whose name matches; raises `RehearsalError`."""
        matches = sorted(self.parts.glob(pattern))
        if len(matches) != 1:
            raise RehearsalError(f"{self.parts} should have one {pattern}, has {[path.name for path in matches]}")
        return matches[0]


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Run a program without this process's Python settings, and return what it prints; raises `RehearsalError`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**environment, **variables},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()[-12:]
        raise RehearsalError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n" + "\n".join(words))
    return done.stdout


def prepare(folders: Folders) -> None:
    """Clone what is committed, and install the programs that make the parts."""
    folders.parts.mkdir(parents=True)
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, folders.source)
    run(sys.executable, "-m", "venv", folders.tools)
    lock = folders.source / "shared" / "build.lock"
    pip = (folders.tools / "bin" / "python", "-m", "pip", "install", "--quiet")
    run(*pip, "--require-hashes", "--requirement", lock)
    run(*pip, "--constraint", folders.source / "requirements.lock", *TOOLS)


def make_distributions(folders: Folders) -> None:
    command = (folders.tools / "bin" / "python", "-m", "build", "--no-isolation", "--outdir", folders.parts)
    run(*command, folders.source)


def make_bills(folders: Folders) -> None:
    """Write what each installation consists of, from the locks that the images and the plugin are made with."""
    for service in ("operator", "descheduler"):
        lock, bill = folders.source / service / "requirements.lock", folders.parts / f"berth-{service}.cdx.json"
        run(folders.tools / "bin" / "cyclonedx-py", "requirements", lock, "--output-format", "JSON", "-o", bill)


def make_plugin(folders: Folders) -> None:
    _release(folders, "plugin", "--address", ADDRESS, "--homepage", HOMEPAGE)


def make_chart(folders: Folders, helm: Path) -> None:
    _release(folders, f"--helm={helm}", "chart")


def _release(folders: Folders, *arguments: str) -> None:
    """Make a part as the workflow of a release does."""
    tool = (folders.tools / "bin" / "python", folders.source / ".ci" / "release.py", "--into", folders.parts)
    run(*tool, *arguments)


def make_site(folders: Folders) -> None:
    tool = (folders.tools / "bin" / "python", folders.source / ".ci" / "website.py")
    run(*tool, "--into", folders.parts / "site")


def write_sums(folders: Folders) -> None:
    """Write the SHA-256 sums of all parts that are one file."""
    files = sorted(path for path in folders.parts.iterdir() if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folders.parts / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def find_python(version: str) -> Path:
    """Return the program of a Python version; raises `LeftOutError`."""
    program = shutil.which(f"python{version}")
    question = "import sys; print(sys.executable, '%d.%d' % sys.version_info[:2])"
    # A shim of a version manager may stand for nothing, or need to be told which one is meant.
    candidates = [program] if program else []
    candidates += sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")))
    for candidate in candidates:
        done = subprocess.run([candidate, "-c", question], capture_output=True, encoding="utf-8", check=False)
        if done.returncode == 0 and done.stdout.split()[1] == version:
            return Path(done.stdout.split()[0])
    raise LeftOutError(f"this machine has no python{version}")


def use_wheel(folders: Folders, version: str) -> str:
    """Install the wheel with all extras of users, and plan with it."""
    environment = folders.into / f"python{version}"
    run(find_python(version), "-m", "venv", environment)
    programs = environment / "bin"
    wheel = folders.part("berth-*.whl")
    run(programs / "python", "-m", "pip", "install", "--quiet", f"{wheel}[descheduler,operator,optimal]")
    run(programs / "python", "-m", "pip", "check")
    for service in ("berth-operator", "berth-descheduler"):
        run(programs / service, "--help")
    return plan(folders, programs / "berth")


def plan(folders: Folders, *program: str | Path, **variables: str) -> str:
    """Plan a snapshot outside of the clone, and return what came of it; raises `RehearsalError` if nothing did."""
    answer = run(*program, "plan", "--snapshot", folders.source / SNAPSHOT, "-o", "json", cwd=folders.into, **variables)
    freed = json.loads(answer)["predicted"]["freedNodeCount"]
    if not freed:
        raise RehearsalError(f"{program[0]} planned {SNAPSHOT}, and freed no node")
    return f"plans: {freed} nodes freed of the snapshot's 60"


def use_source(folders: Folders) -> str:
    """Build the source distribution, which gives the wheel that is published."""
    with tarfile.open(folders.part("berth-*.tar.gz")) as archive:
        archive.extractall(folders.into / "unpacked", filter="data")
    (unpacked,) = (folders.into / "unpacked").iterdir()
    again = folders.into / "again"
    run(folders.tools / "bin" / "python", "-m", "build", "--no-isolation", "--wheel", "--outdir", again, unpacked)
    wheel = folders.part("berth-*.whl")
    if (again / wheel.name).read_bytes() != wheel.read_bytes():
        raise RehearsalError("the source distribution gives another wheel than the clone")
    return "gives the same wheel"


def use_bills(folders: Folders) -> str:
    """Read the bills, and compare them with the locks they are of."""
    counts = []
    for service in ("operator", "descheduler"):
        bill = json.loads((folders.parts / f"berth-{service}.cdx.json").read_text(encoding="utf-8"))
        listed = {(part["name"].lower(), part["version"]) for part in bill["components"]}
        lock = (folders.source / service / "requirements.lock").read_text(encoding="utf-8")
        locked = {
            (name.lower(), version) for name, version in re.findall(r"^([\w.-]+)==([\w.+-]+)", lock, re.MULTILINE)
        }
        if not locked or listed != locked:
            raise RehearsalError(f"the bill of {service} differs from its lock: {sorted(listed ^ locked)}")
        counts.append(f"{service} {len(listed)}")
    return f"packages listed: {', '.join(counts)}"


def use_plugin(folders: Folders) -> str:
    """Install the plugin as krew does, and call it."""
    archive, manifest = folders.part("kubectl-berth-*.tar.gz"), folders.part("berth.yaml").read_text(encoding="utf-8")
    if hashlib.sha256(archive.read_bytes()).hexdigest() not in manifest:
        raise RehearsalError("the manifest for krew has another sum than the archive")
    store = folders.into / "krew"
    with tarfile.open(archive) as packed:
        packed.extractall(store, filter="data")
    link = folders.into / "kubectl-berth"
    link.symlink_to(store / "kubectl-berth")
    python = {"BERTH_PYTHON": sys.executable, "XDG_CACHE_HOME": str(folders.into / "cache")}
    return f"installs itself, {plan(folders, link, **python)}"


def use_chart(folders: Folders, helm: Path) -> str:
    """Install the chart from its package on a sandbox until both services are available, and remove it."""
    from berth_sandbox.sandbox import Sandbox  # noqa: PLC0415 - what needs no sandbox needs no berth[sandbox]
    from berth_sandbox.settings import SandboxSettings  # noqa: PLC0415

    with Sandbox.start(SandboxSettings(nodes=1), progress=lambda _: None) as sandbox:
        where = ("--kubeconfig", sandbox.kubeconfig, "--namespace", "berth-system", "--wait", "--timeout", "180s")
        run(helm, "install", "berth", folders.part("berth-*.tgz"), *where, "--create-namespace")
        kubectl = ("kubectl", "--kubeconfig", sandbox.kubeconfig, "--namespace", "berth-system")
        deployments = json.loads(run(*kubectl, "get", "deployments", "-o", "json"))["items"]
        ready = {item["metadata"]["name"]: item["status"].get("readyReplicas", 0) for item in deployments}
        run(helm, "uninstall", "berth", *where)
    if set(ready) != {"berth-operator", "berth-descheduler"} or not all(ready.values()):
        raise RehearsalError(f"the chart's Deployments have so many pods ready: {ready}")
    return "installed from its package, both services available, removed"


def use_images(folders: Folders) -> str:
    """Build both images and start their programs; raises `LeftOutError` where nothing can build them."""
    reasons = []
    for builder in ("docker", "buildah"):
        if not shutil.which(builder):
            reasons.append(f"there is no {builder}")
        elif subprocess.run([builder, "info"], capture_output=True, check=False).returncode:
            reasons.append(f"`{builder} info` fails")
        else:
            return "; ".join(_use_image(folders, builder, service) for service in ("operator", "descheduler"))
    raise LeftOutError(" and ".join(reasons))


def _use_image(folders: Folders, builder: str, service: str) -> str:
    tag, definition = f"berth-{service}:rehearsal", folders.source / service / "Dockerfile"
    run(builder, "build", "--tag", tag, "--file", definition, folders.source)
    if builder == "docker":
        run("docker", "run", "--rm", tag, "--help")
    else:
        container = run("buildah", "from", tag).strip()
        run("buildah", "run", container, "--", f"berth-{service}", "--help")
        run("buildah", "rm", container)
    return f"{service} built and started with {builder}"


class _Links(html.parser.HTMLParser):
    """Collects where a page leads and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif "src" in given:
            self.loads.append(given["src"])
        elif tag == "link" and given.get("rel") in {"stylesheet", "icon", "preload"}:
            self.loads.append(given["href"])


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback until the end of the block; yields its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def walk_site(folder: Path) -> str:
    """Follow every link of a site from its first page; raises `RehearsalError` with the dead ones."""
    with serving(folder) as address:
        problems, pages = _walk(address)
    if problems:
        raise RehearsalError("the site has dead links or loads from elsewhere:\n" + "\n".join(sorted(problems)[:20]))
    return f"served, {len(pages)} pages walked, no dead link, nothing loaded from elsewhere"


def _walk(address: str) -> tuple[set[str], dict[str, set[str]]]:
    """Return what is wrong with a site, and the anchors of each page by its address."""
    problems: set[str] = set()
    pages: dict[str, set[str]] = {}
    answered: set[str] = set()
    wanted_anchors: set[tuple[str, str, str]] = set()
    coming = [(address, address)]
    while coming:
        url, origin = coming.pop()
        url, anchor = urldefrag(url)
        if anchor:
            wanted_anchors.add((url, anchor, origin))
        if url in answered:
            continue
        answered.add(url)
        try:
            with urllib.request.urlopen(url) as answer:  # noqa: S310 - below our own address
                is_page, body = answer.headers.get_content_type() == "text/html", answer.read()
        except urllib.error.URLError as error:
            problems.add(f"{origin} leads to {url}: {error}")
            continue
        if not is_page:
            continue
        links = _Links()
        links.feed(body.decode("utf-8"))
        pages[url] = links.anchors
        for load in links.loads:
            target = urljoin(url, load)
            if target.startswith(address):
                coming.append((target, url))
            elif urlsplit(target).scheme in {"http", "https"}:
                problems.add(f"{url} loads {target}")
        coming += [(target, url) for link in links.links if (target := urljoin(url, link)).startswith(address)]
    problems |= {
        f"{origin} leads to {url}#{anchor}, which the page does not have"
        for url, anchor, origin in wanted_anchors
        if url in pages and anchor not in pages[url]
    }
    return problems, pages


Step = tuple[str, Callable[[Folders], object], Callable[[Folders], str]]
"""Its name, what makes the part, and what uses it and says what came of that."""


def steps(helm: Callable[[], Path]) -> list[Step]:
    """Return all steps in their order; `helm` returns helm's program, and builds it first if need be."""
    nothing: Callable[[Folders], object] = lambda _: None  # noqa: E731 - the wheel is made once
    return [
        ("source", make_distributions, use_source),
        *((f"wheel, Python {version}", nothing, partial(use_wheel, version=version)) for version in PYTHONS),
        ("bills", make_bills, use_bills),
        ("plugin", make_plugin, use_plugin),
        ("chart", lambda folders: make_chart(folders, helm()), lambda folders: use_chart(folders, helm())),
        ("site", make_site, lambda folders: walk_site(folders.parts / "site")),
        ("images", nothing, use_images),
    ]


def find_sandbox_helm() -> Path:
    from berth_sandbox.binaries import find_helm  # noqa: PLC0415 - as in use_chart

    return Path(find_helm(lambda line: print(line, file=sys.stderr)))


def rehearse(folders: Folders, chosen: Sequence[str], all_steps: Sequence[Step]) -> int:
    """Do the chosen steps, print how each ended, and return how many failed."""
    failed = 0
    for name, make, use in all_steps:
        if chosen and not any(name.startswith(choice) for choice in chosen) and name != "source":
            continue
        began = time.monotonic()
        try:
            make(folders)
            outcome, word = use(folders), "passed"
        except LeftOutError as reason:
            outcome, word = str(reason), "left out"
        except (RehearsalError, OSError, KeyError, ValueError) as error:
            outcome, word = str(error) or repr(error), "FAILED"
            failed += 1
        print(f"{word:<9} {name:<20} {time.monotonic() - began:6.0f} s  {outcome}", flush=True)
    write_sums(folders)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, required=True, help="folder to work in; must not exist")
    parser.add_argument(
        "--only", action="append", default=[], help="begin of a step's name; may be given several times"
    )
    options = parser.parse_args(arguments)
    if options.into.exists():
        parser.error(f"--into {options.into} exists already: a rehearsal needs a clean folder")
    folders = Folders(options.into.resolve())
    try:
        if changed := run("git", "status", "--short", cwd=ROOT):
            print("what is not committed is not part of the rehearsal:", changed, sep="\n", file=sys.stderr)
        prepare(folders)
    except RehearsalError as error:
        print(error, file=sys.stderr)
        return 1
    failed = rehearse(folders, options.only, steps(find_sandbox_helm))
    print(f"the parts are in {folders.parts}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
