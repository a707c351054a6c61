"""The lease is renewed by who holds it, and by nobody once it is over."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rollpin import remote_steps

TX = "glm53-2-ab"


def renew(folder: Path, tx: str = TX, owner: str = TX) -> int:
    script = remote_steps._RENEW.replace("/run/rollpin", str(folder))
    argv = ["sh", "-s", str(folder), tx, "30", owner]
    return subprocess.run(argv, input=script, text=True, check=False).returncode


def lease(folder: Path) -> str | None:
    path = folder / "lease"
    return path.read_text() if path.exists() else None


@pytest.mark.parametrize("state", ["armed", "restoring"])
def test_while_it_is_open(tmp_path: Path, state: str) -> None:
    (tmp_path / state).touch()
    (tmp_path / "lease").write_text(f"1 {TX}\n")
    assert renew(tmp_path) == 0
    until, tx = (lease(tmp_path) or "").split()
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert tx == TX
    assert 0 < int(until) - uptime + 1 <= 31


@pytest.mark.parametrize(
    ("state", "there"),
    [
        ("committed", f"1 {TX}\n"),
        ("armed", None),  # taken away by who ended it, a moment ago
        ("armed", "99 glm53-3-cd\n"),  # of the transaction after it
    ],
)
def test_what_is_over_or_another_s_stays_as_it_is(
    tmp_path: Path, state: str, there: str | None
) -> None:
    (tmp_path / state).touch()
    if there:
        (tmp_path / "lease").write_text(there)
    assert renew(tmp_path) == 76
    assert lease(tmp_path) == there
    assert list(tmp_path.glob(".lease*")) == []


def test_not_by_a_controller_that_another_took_over_from(tmp_path: Path) -> None:
    (tmp_path / "armed").touch()
    (tmp_path / "lease").write_text(f"1 {TX}\n")
    (tmp_path / "transaction").write_text(f"id={TX}\nby=mk@ops\nowner={TX}.ab\n")
    assert renew(tmp_path) == 79
    assert lease(tmp_path) == f"1 {TX}\n"
    assert renew(tmp_path, owner=f"{TX}.ab") == 0
    assert lease(tmp_path) != f"1 {TX}\n"
