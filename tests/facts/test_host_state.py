"""The one fact: its command quotes what it is given, runs, and changes nothing."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from rollpin.facts.host_state import HostState, observe_script
from rollpin.observe import Unknown

HERE = Path(__file__).parent / "host_state"
HOSTILE = "a'; touch pwned; $(touch pwned) `touch pwned` \" \\ é"


def test_the_command_quotes_its_values() -> None:
    command = HostState().command(HOSTILE, HOSTILE, [HOSTILE, "/b c"], [HOSTILE], [HOSTILE])
    head, _, body = command.partition("\n# Observes; changes nothing.")
    assert body
    assert "pwned" not in body
    assert shlex.split(head) == [
        f"SERVICE={HOSTILE}",
        "STATE=/var/lib/rollpin",
        "RUN=/run/rollpin",
        f"IMAGE={HOSTILE}",
        f"PATHS={HOSTILE}\n/b c",
        f"IDLE={HOSTILE}",
        f"DIFFS={HOSTILE}",
    ]


def test_the_values_are_not_run(tmp_path: Path) -> None:
    """On this machine, whatever it has: the answer is whole, and says what it could not see."""
    script = observe_script("no-such-service", HOSTILE, [str(tmp_path / HOSTILE)], ["no-such"])
    done = subprocess.run(
        ["sh", "-s"], input=script, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []
    state = HostState().process(done.stdout.splitlines())
    assert state.name
    assert state.uptime > 0
    disk = state.disks[str(tmp_path / HOSTILE)]
    assert not isinstance(disk, Unknown)
    assert not disk.exists
    assert disk.free > 0
    assert not state.image or isinstance(state.image, Unknown)


@pytest.mark.parametrize("recorded", sorted(HERE.glob("*.txt")), ids=lambda p: p.stem)
def test_recorded_answers_are_read(recorded: Path) -> None:
    state = HostState().process(recorded.read_text(encoding="utf-8").splitlines())
    assert state.name.startswith("lab")
    daemon = "dead_daemon" not in recorded.stem
    assert isinstance(state.containers, Unknown) is not daemon
    assert isinstance(state.listeners, Unknown) is ("no_ss" in recorded.stem)
    assert isinstance(state.gpus, Unknown) is ("nvidia_smi_fails" in recorded.stem)


def test_no_answer_is_unknown() -> None:
    state = HostState.default()
    assert isinstance(state.containers, Unknown)
    assert isinstance(state.releases, Unknown)
