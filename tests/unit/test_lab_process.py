"""Processes of a lab are found while they become another program, too."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rollpin.lab import process


def test_a_process_in_the_middle_of_an_exec_is_there(tmp_path: Path) -> None:
    """The keeper of a host is `unshare`, then Python: between the two it was taken for gone."""
    script = tmp_path / "again.sh"
    script.write_text('[ "$1" -lt 1000 ] && exec sh "$0" $(($1 + 1))\n')
    running = subprocess.Popen(["sh", str(script), "0"])
    looks = 0
    while running.poll() is None:
        seen = process.look(running.pid)
        if seen is not None and seen.alive():
            looks += 1
            assert seen.argv[:2] == ("sh", str(script))
    assert looks > 1000  # some of them in the middle


def test_this_process_and_one_that_is_gone() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert process.look(gone.pid) is None
    mine = process.look(os.getpid())
    assert mine is not None
    assert mine.argv
