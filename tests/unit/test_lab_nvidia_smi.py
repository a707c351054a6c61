"""The lab's nvidia-smi, as the file that is installed, against the recorded formats."""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from rollpin.lab import nvidia_smi

SCRIPT = Path(nvidia_smi.__file__)
CONTAINER = "ab" * 32
ENGINE_MIB = 72803  # 0.85 of 85651


@dataclass
class Lab:
    """A made-up /proc, fault file and Docker socket."""

    root: Path

    def smi(self, *argv: str) -> subprocess.CompletedProcess[str]:
        env = {
            "ROLLPIN_LAB_PROC": str(self.root / "proc"),
            "ROLLPIN_LAB_NVIDIA_SMI_FAULTS": str(self.root / "faults.json"),
            "ROLLPIN_LAB_DOCKER_SOCKET": str(self.root / "docker.sock"),
        }
        # not through the shebang: -I and -S are its own, and here Python may live elsewhere
        command = [sys.executable, "-IS", str(SCRIPT), *argv]
        return subprocess.run(
            command, env=os.environ | env, capture_output=True, text=True, timeout=30, check=False
        )

    def rows(self, *argv: str) -> list[list[str]]:
        done = self.smi(*argv)
        assert (done.returncode, done.stderr) == (0, "")
        return [line.split(", ") for line in done.stdout.splitlines()]

    def apps(self) -> list[list[str]]:
        return self.rows(
            "--query-compute-apps=pid,gpu_uuid,process_name,used_gpu_memory",
            "--format=csv,noheader,nounits",
        )

    def process(self, pid: int, comm: str, *argv: str) -> None:
        folder = self.root / "proc" / str(pid)
        folder.mkdir()
        (folder / "comm").write_text(f"{comm}\n")
        (folder / "cmdline").write_text("".join(f"{word}\0" for word in argv))
        (folder / "cgroup").write_text(f"0::/system.slice/docker-{CONTAINER}.scope\n")

    def scheduler(self, pid: int, gpus: str, comm: str = "sglang::schedul") -> None:
        facts = (f"--gpus={gpus}", "--ranks=8", "--mem_fraction=0.85")
        self.process(pid, comm, "sglang::scheduler", "-S", "-m", "sglang.scheduler", *facts)

    def faults(self, **faults: object) -> None:
        (self.root / "faults.json").write_text(json.dumps(faults))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    (tmp_path / "proc").mkdir()
    lab = Lab(tmp_path)
    lab.process(1, "systemd", "/sbin/init")
    lab.process(700, "python3", "python3", "-c", "import signal; signal.pause()")
    return lab


QUERY = (
    "index,uuid,name,pci.bus_id,memory.total,memory.used,memory.free,utilization.gpu,"
    "driver_version,compute_cap,mig.mode.current,persistence_mode,temperature.gpu,"
    "ecc.errors.uncorrected.volatile.total"
)


def test_gpu_query_as_recorded(lab: Lab) -> None:
    rows = lab.rows(f"--query-gpu={QUERY}", "--format=csv,noheader,nounits")
    assert len(rows) == 8
    assert [row[0] for row in rows] == list("01234567")
    assert rows[0][2:9] == [
        *("NVIDIA RTX 6000D", "00000000:01:00.0", "85651", "4", "85033", "0", "580.159.04")
    ]
    assert rows[0][9:] == ["12.0", "Disabled", "Enabled", "33", "0"]


def test_units_and_header(lab: Lab) -> None:
    header, first, *_ = lab.rows(
        "--query-gpu=index,memory.total,utilization.gpu,temperature.gpu", "--format=csv"
    )
    assert header == ["index", "memory.total [MiB]", "utilization.gpu [%]", "temperature.gpu"]
    assert first == ["0", "85651 MiB", "0 %", "33"]


def test_uuids_are_stable_and_listed(lab: Lab) -> None:
    listed = lab.smi("-L").stdout.splitlines()
    assert listed[7] == f"GPU 7: NVIDIA RTX 6000D (UUID: {nvidia_smi.uuid(7)})"
    assert len(set(listed)) == 8
    assert nvidia_smi.uuid(0)[:4] == "GPU-"
    assert [len(part) for part in nvidia_smi.uuid(0)[4:].split("-")] == [8, 4, 4, 4, 12]


def test_unknown_field_as_recorded(lab: Lab) -> None:
    done = lab.smi("--query-gpu=index,bogus", "--format=csv")
    assert done.returncode == 2
    assert done.stdout == 'Field "bogus" is not a valid field to query.\n\n'


def test_unknown_option(lab: Lab) -> None:
    assert lab.smi("--no-such-thing").returncode == 2


def test_nobody_on_the_gpus(lab: Lab) -> None:
    assert lab.apps() == []


def test_engine_on_all_gpus(lab: Lab) -> None:
    lab.scheduler(4242, "all")
    uuids = [nvidia_smi.uuid(n) for n in range(8)]
    assert lab.apps() == [["4242", u, "sglang::scheduler", str(ENGINE_MIB)] for u in uuids]
    used = lab.rows("--query-gpu=memory.used", "--format=csv,noheader,nounits")
    assert used == [[str(ENGINE_MIB + 9)]] * 8


def test_engine_on_some_gpus_by_index_and_uuid(lab: Lab) -> None:
    lab.scheduler(4242, f"2,{nvidia_smi.uuid(5)}")
    assert [row[1] for row in lab.apps()] == [nvidia_smi.uuid(2), nvidia_smi.uuid(5)]


def test_engine_before_its_weights_has_no_context(lab: Lab) -> None:
    lab.scheduler(4242, "all", comm="python3")
    assert lab.apps() == []


def test_id_chooses(lab: Lab) -> None:
    rows = lab.rows("-i", "3", "--query-gpu=index", "--format=csv,noheader")
    assert rows == [["3"]]


def test_table_has_the_recorded_shape(lab: Lab) -> None:
    lab.scheduler(4242, "0")
    lines = lab.smi().stdout.splitlines()
    assert {len(line) for line in lines[1:] if line} == {91}
    assert any("|    72812MiB / 85651MiB |      0%      Default |" in line for line in lines)
    row = "|    0   N/A  N/A            4242      C   sglang::scheduler                     "
    assert f"{row}72803MiB |" in lines


def test_pmon(lab: Lab) -> None:
    lab.scheduler(4242, "0")
    lines = lab.smi("pmon", "-c", "1").stdout.splitlines()
    assert lines[2].split()[:3] == ["0", "4242", "C"]
    assert lines[3].split()[:3] == ["1", "-", "-"]


# --- Docker, for an engine that cannot tell its GPUs ----------------------------------------------


class Engine(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    inspected: object = None


class Answer(BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        assert self.path == f"/containers/{CONTAINER}/json"
        body = json.dumps(self.server.inspected).encode()
        self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def docker(lab: Lab) -> Iterator[Engine]:
    with Engine(str(lab.root / "docker.sock"), Answer) as engine:
        serving = threading.Thread(target=engine.serve_forever, args=[0.01])
        serving.start()
        yield engine
        engine.shutdown()
        serving.join()


@pytest.mark.parametrize(
    ("host_config", "gpus"),
    [
        ({"DeviceRequests": [{"Count": -1, "DeviceIDs": None}]}, [*range(8)]),
        ({"DeviceRequests": [{"Count": 2}]}, [0, 1]),
        ({"DeviceRequests": [{"Count": 0, "DeviceIDs": ["1", nvidia_smi.uuid(6)]}]}, [1, 6]),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=3"]}]}, [3]),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]}, [*range(8)]),
        ({"Runtime": "nvidia"}, [4, 5]),
        ({"Runtime": "runc"}, []),
    ],
)
def test_gpus_by_docker(
    lab: Lab, docker: Engine, host_config: dict[str, object], gpus: list[int]
) -> None:
    env = ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=4,5"]
    docker.inspected = {"HostConfig": host_config, "Config": {"Env": env}}
    lab.scheduler(4242, "")
    assert [row[1] for row in lab.apps()] == [nvidia_smi.uuid(gpu) for gpu in gpus]


def test_docker_silent_leaves_the_engine_out(lab: Lab) -> None:
    with socketserver.UnixStreamServer(str(lab.root / "docker.sock"), Answer):
        lab.scheduler(4242, "")  # bound and listening; nobody accepts
        lab.scheduler(4300, "7")
        assert [row[0] for row in lab.apps()] == ["4300"]


# --- faults -------------------------------------------------------------------------------------


def test_broken_driver(lab: Lab) -> None:
    lab.faults(exit=9, stderr="NVIDIA-SMI has failed")
    done = lab.smi()
    assert (done.returncode, done.stdout, done.stderr) == (9, "", "NVIDIA-SMI has failed\n")


def test_hang(lab: Lab) -> None:
    lab.faults(hang=0.2)
    assert lab.smi("-L").returncode == 0


def test_foreign_process_and_leak(lab: Lab) -> None:
    app = {"gpu": 1, "pid": 77, "process_name": "python3", "used_mib": 512}
    lab.faults(apps=[app], leak_mib={"0": 2048})
    assert lab.apps() == [["77", nvidia_smi.uuid(1), "python3", "512"]]
    used = lab.rows("--query-gpu=memory.used", "--format=csv,noheader")
    assert used[:3] == [["2052 MiB"], ["521 MiB"], ["4 MiB"]]


def test_unknown_values(lab: Lab) -> None:
    lab.faults(fields={"memory.used": "[N/A]", "utilization.gpu": {"1": 97}})
    rows = lab.rows("--query-gpu=memory.used,utilization.gpu", "--format=csv,noheader")
    assert rows[:3] == [["[N/A]", "0 %"], ["[N/A]", "97 %"], ["[N/A]", "0 %"]]
