"""How a script's end is told from a lost connection. In a process of its own, as pyinfra's is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from rollpin.lab import machine, network
from rollpin.lab.host import Host

from .controller import ROOT

RUN = """
import json, sys
from rollpin.cli.hosts import chosen, connected
[host] = chosen("inventory/lab.py", [sys.argv[1]])
from rollpin.errors import Lost
from rollpin.remote import Remote
with connected(host):
    try:
        answer = Remote(host, False).run(sys.argv[2], within=90)
        print(json.dumps({"status": answer.status, "output": answer.output}))
    except Lost as e:
        print(json.dumps({"lost": str(e)}))
"""


def started(host: Host, script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, host.name, script],
        cwd=ROOT,
        env={**os.environ, "ROLLPIN_LAB": host.lab.name},
        stdout=subprocess.PIPE,
        text=True,
    )


def ended(run: subprocess.Popen[str]) -> dict[str, Any]:
    said, _ = run.communicate(timeout=100)
    return dict(json.loads(said.splitlines()[-1]))


def test_a_script_that_a_signal_ends_is_an_answer(host: Host) -> None:
    assert ended(started(host, "echo before; kill -9 $$")) == {"status": -1, "output": "before\n"}


def test_a_connection_that_ends_in_a_script_is_no_answer(host: Host) -> None:
    """Not even one without a status: what it did is unknown."""
    assert (
        "connection was lost"
        in ended(started(host, "echo before; kill -9 $PPID; sleep 60"))["lost"]
    )


@pytest.mark.slow
def test_a_host_that_goes_in_a_silent_script_is_noticed(host: Host) -> None:
    """By the connection itself, long before the script's own deadline."""
    run = started(host, "exec sleep 85")
    while not host.run(["pgrep", "-xf", "sleep 85"], check=False).stdout:
        assert run.poll() is None
    cable = f"vb-{network.mark(host.lab.name)}-{host.name}"
    machine.run(["ip", "link", "set", cable, "down"])
    try:
        assert "connection was lost" in ended(run)["lost"]
    finally:
        machine.run(["ip", "link", "set", cable, "up"])
