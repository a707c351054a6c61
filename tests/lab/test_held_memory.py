"""Memory that stays held on the GPUs after the stop: waited for, then named with its process."""

from __future__ import annotations

import json
import signal

import pytest

from rollpin.lab.host import Host

from .controller import Controller, as_it_was, furnished, journal

# A process of the host that the driver would show as the container's: killed, and still there.
_HOLD = """
mkdir -p /sys/fs/cgroup/pids/held-$1 /run/rollpin-lab
setsid sleep 1000 </dev/null >/dev/null 2>&1 &
echo $! >/sys/fs/cgroup/pids/held-$1/cgroup.procs
echo $!
"""


@pytest.mark.slow
def test_a_restore_names_what_holds_the_memory(host: Host) -> None:
    before = furnished(host)
    faults = "/run/rollpin-lab/nvidia-smi.json"
    with Controller(host, engine={"ROLLPIN_LAB_FAULT": "slow:600"}, lease="10m") as run:
        run.wait_for("] waiting for")
        ident = host.run("docker inspect --format '{{.Id}}' glm53").stdout.strip()
        pid = host.run(["sh", "-c", _HOLD, "sh", ident]).stdout.strip()
        app = {"gpu": 0, "pid": int(pid), "process_name": "python3", "used_mib": 512}
        host.run(f"cat >{faults}", stdin=json.dumps({"apps": [app]}))
        try:
            run.send(signal.SIGTERM)
            assert run.end(300) == 1
            # there was room beside it: what served before serves again
            assert run.word() == "restored"
            told = f"process {pid} (sleep; to end it: kill -9 {pid})"
            _, _, summary = run.output.partition("--> Verdicts:")
            assert f"warning: memory stays held on the GPUs by {told}" in summary
            assert [e["event"] for e in journal(host)][-2:] == ["gpu-memory-held", "restored"]
            assert told in journal(host)[-2]["detail"]
        finally:
            host.run(f"rm -f {faults}; kill -9 {pid}")
    as_it_was(host, before)
