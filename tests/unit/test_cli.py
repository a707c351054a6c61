"""The verbs that run an operation: the words that pyinfra gets."""

from __future__ import annotations

import os
import sys

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
