"""The names of plans with an Idempotency-Key follow from the key of the certificate, which all replicas share."""

from pathlib import Path

import pytest

from berth_descheduler.api.name_secret import read_name_secret
from berth_descheduler.api.problems import ProblemError


def test_replicas_with_the_same_key_have_the_same_secret_and_others_another(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("first", "second", "other")}
    for name, file in files.items():
        file.write_bytes(b"other" if name == "other" else b"key")
    secrets = {name: read_name_secret(file) for name, file in files.items()}
    assert secrets["first"] == secrets["second"]
    assert secrets["first"] != secrets["other"]
    assert b"key" not in secrets["first"]
    assert len(secrets["first"]) == 32


def test_without_a_certificate_there_is_no_secret() -> None:
    assert read_name_secret(None) == b""


def test_while_the_key_cannot_be_read_the_request_is_asked_for_again(tmp_path: Path) -> None:
    with pytest.raises(ProblemError) as refused:
        read_name_secret(tmp_path / "none")
    assert refused.value.status == 503
