import subprocess
import sys
from pathlib import Path

import pytest

from berth_core.errors import InputError
from berth_sandbox.components import Component
from berth_sandbox.errors import SandboxNameError
from berth_sandbox.folder_claims import claim_folder
from berth_sandbox.folders import cache_folder, named_folder, remove_folder, state_folder
from berth_sandbox.processes import read_command_line
from berth_sandbox.records import read_record
from berth_sandbox.sandbox import Sandbox
from waiting import soon


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_two_starts_under_one_name_never_share_a_folder() -> None:
    with claim_folder("one"):
        with pytest.raises(SandboxNameError, match="just being started"), claim_folder("one"):
            pytest.fail("the folder was claimed twice")
        with claim_folder("two") as other:
            assert other.root == named_folder("two")


def test_nameless_sandboxes_get_a_folder_each() -> None:
    with claim_folder(None) as one, claim_folder(None) as two:
        assert one.root != two.root
    remove_folder(one.root)
    remove_folder(two.root)


def test_what_a_dead_sandbox_left_is_removed_first() -> None:
    with claim_folder("one") as folder:
        folder.etcd_data.mkdir()
        folder.pid_file(Component.ETCD).write_text("999999999")
    with claim_folder("one") as folder:
        assert not folder.etcd_data.exists()
        assert not folder.pid_file(Component.ETCD).exists()


def test_a_name_is_taken_while_a_component_of_it_lives() -> None:
    with claim_folder("one") as folder:
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", str(folder.root)])
        folder.pid_file(Component.ETCD).write_text(str(sleeper.pid))
    try:
        soon("it is visible", lambda: str(folder.root) in read_command_line(sleeper.pid))
        with pytest.raises(SandboxNameError, match="already up"), claim_folder("one"):
            pytest.fail("a live sandbox was taken over")
    finally:
        sleeper.kill()
        sleeper.wait()
    with claim_folder("one"):
        pass


def test_a_name_under_which_nothing_is_up_is_said_so() -> None:
    with pytest.raises(SandboxNameError, match="berth sandbox up --name nothing"):
        Sandbox.find("nothing")
    assert Sandbox.names() == ()
    assert not Sandbox.stop_named("nothing")


@pytest.mark.parametrize("name", ["", ".", "..", "../other", "/etc", "a/b", "A"])
def test_no_name_leads_out_of_the_folder_of_sandboxes(name: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="name is"):
        Sandbox.stop_named(name)
    with pytest.raises(InputError, match="name is"):
        Sandbox.find(name)
    assert (tmp_path / "other").is_dir()


def test_a_half_started_sandbox_is_not_listed_but_can_be_removed() -> None:
    with claim_folder("half") as folder:
        pass
    with pytest.raises(SandboxNameError):
        read_record(folder)
    assert Sandbox.names() == ()
    assert Sandbox.stop_named("half")
    assert not folder.root.exists()


def test_folders_follow_the_users_settings_and_ignore_relative_ones(tmp_path: Path) -> None:
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "berth"
    assert cache_folder({"XDG_CACHE_HOME": "here"}) == Path.home() / ".cache" / "berth"
    assert state_folder({}) == Path.home() / ".local" / "state" / "berth" / "sandboxes"
