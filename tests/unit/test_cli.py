"""The verbs that run an operation: the words that pyinfra gets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rollpin.cli import abort, rollback
from rollpin.errors import UsageError


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command line that the process became."""
    words: list[str] = []
    monkeypatch.setattr(os, "execv", lambda _, argv: words.extend(argv))
    return words


ROOT = Path(__file__).parents[2]
PYINFRA = [sys.executable, "-m", "pyinfra"]


def test_rollback(became: list[str]) -> None:
    argv = ["inv.py", "--to", "0", "--lease", "20s", "--limit", "a", "--limit", "b", "-y"]
    assert CliRunner().invoke(rollback.rollback, argv).exit_code == 0
    assert became == [
        *PYINFRA,
        *("-y", "inv.py", "rollpin.operations.release.rolled_back", "service=glm53", "to=0"),
        *("--limit", "a", "--limit", "b", "--data", "lease=20s"),
    ]


def test_rollback_asks_and_looks_first(became: list[str]) -> None:
    assert CliRunner().invoke(rollback.rollback, ["inv.py", "--dry"]).exit_code == 0
    operation = "rollpin.operations.release.rolled_back"
    assert became == [*PYINFRA, "--dry", "inv.py", operation, "service=glm53"]


def test_abort(became: list[str]) -> None:
    assert CliRunner().invoke(abort.abort, ["gpu7", "-i", "inv.py"]).exit_code == 0
    operation = "rollpin.operations.recovery.restored"
    assert became == [*PYINFRA, "-y", "inv.py", operation, "--limit", "gpu7"]


@pytest.mark.parametrize("service", ["../x", "-rf", "A", ""])
def test_a_service_that_is_none_reaches_nobody(became: list[str], service: str) -> None:
    done = CliRunner().invoke(abort.abort, ["gpu7", "-i", "inv.py", f"--service={service}"])
    assert isinstance(done.exception, UsageError)
    assert became == []


@pytest.mark.parametrize(
    ("inventory", "told"),
    [
        ("nowhere.py", "there is no inventory nowhere.py"),
        (",", "there is no inventory ,"),
        ("", "there is no inventory"),
        ("empty.py", "inventory empty.py has no host"),
        ("broken.py", "inventory broken.py: ZeroDivisionError: division by zero"),
    ],
)
def test_an_inventory_that_cannot_be_read(tmp_path: Path, inventory: str, told: str) -> None:
    (tmp_path / "empty.py").write_text("lab: list[str] = []\n")
    (tmp_path / "broken.py").write_text("lab = [1 / 0]\n")
    argv = [str(Path(sys.executable).with_name("rollpin")), "status", inventory]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("names", ["127.0.0.2,", "@ssh/127.0.0.2", "127.0.0.2, 127.0.0.3"])
def test_a_fleet_that_cannot_be_reached_is_unknown(tmp_path: Path, names: str) -> None:
    (tmp_path / "config.py").write_text((ROOT / "config.py").read_text())
    argv = [str(Path(sys.executable).with_name("rollpin")), "status", names]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "127.0.0.2:   unknown: cannot connect" in done.stdout
    assert "no host was chosen" not in done.stderr
    assert "Traceback" not in done.stderr
