"""What is there: present, absent or unknown; a dead daemon is never an empty host."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollpin.observe import (
    Container,
    Disk,
    Engine,
    Gpu,
    GpuApp,
    HostState,
    Image,
    Listener,
    Transaction,
    Unknown,
    unreachable,
)
from rollpin.observe_parse import parse_host_state, sections
from rollpin.preflight import refusals

from . import builders as a

# Recorded from lab hosts; the last two edited by hand from docker26_cdi.
RECORDED = Path(__file__).parents[1] / "facts" / "host_state"
WHOLE = ("docker20_classic", "docker26_cdi", "docker26_containerd")


def lines(name: str) -> list[str]:
    return (RECORDED / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def recorded(name: str) -> HostState:
    return parse_host_state(lines(name))


def known(state: HostState) -> tuple[Container, ...]:
    assert not isinstance(state.containers, Unknown), state.containers
    return state.containers


def edited(name: str, section: str, body: list[str], status: int = 0) -> HostState:
    """A recording with one section replaced."""
    out: list[str] = []
    inside = False
    for line in lines(name):
        if line == f"@@rollpin begin {section}":
            inside = True
            out += [line, *body, f"@@rollpin end {section} {status}"]
        elif inside:
            inside = not line.startswith(f"@@rollpin end {section} ")
        else:
            out.append(line)
    return parse_host_state(out)


# Recordings


@pytest.mark.parametrize("name", WHOLE)
def test_a_recorded_host_is_known_whole(name: str) -> None:
    state = recorded(name)
    for field in dataclasses.fields(state):
        assert not isinstance(getattr(state, field.name), Unknown), field.name
    assert refusals(state, guard=True) == []
    by_name = {c.name: c for c in known(state)}
    live, old = by_name["glm53"], by_name["glm53-pp4"]
    assert (live.status, live.policy, live.gpus, live.network) == (
        "running",
        "unless-stopped",
        ("all",),
        "host",
    )
    assert (old.status, old.policy, old.alive, old.pid) == ("exited", "no", False, 0)
    assert live.labels["rollpin.service"] == "glm53"
    assert live.argv[0] == "/opt/nvidia/nvidia_entrypoint.sh"
    assert '{"index_topk_freq": 4}' in live.argv
    assert live.record["Id"] == live.id
    assert state.container("glm53") is live
    assert state.container(live.id) is live
    assert state.container("nobody") is None
    assert isinstance(state.gpus, tuple)
    assert [g.index for g in state.gpus] == [str(i) for i in range(8)]
    assert isinstance(state.gpu_apps, tuple)
    assert {x.container for x in state.gpu_apps} == {live.id}
    assert isinstance(state.listeners, tuple)
    assert {x.container for x in state.listeners if x.port == 30000} == {live.id}
    assert {x.container for x in state.listeners if x.port == 22} == {""}
    assert old.id in state.displaced_notes
    assert state.transaction is None
    assert (state.systemd, state.privileged, state.missing_tools) == (True, True, ())
    disk = state.disks["/var/lib/docker"]
    assert isinstance(disk, Disk)
    assert disk.exists
    assert disk.free > 10**9
    assert "rw" in disk.options.split(",")


@pytest.mark.parametrize(
    ("name", "version", "containerd", "kind"),
    [
        ("docker20_classic", "20.10.24+dfsg1", False, "sha256:258442adb7bd"),
        ("docker26_cdi", "26.1.5+dfsg1", False, "sha256:258442adb7bd"),
        ("docker26_containerd", "26.1.5+dfsg1", True, "sha256:dedbaa6f0d69"),
    ],
)
def test_engines_and_images(name: str, version: str, containerd: bool, kind: str) -> None:
    state = recorded(name)
    assert isinstance(state.engine, Engine)
    assert (state.engine.version, state.engine.containerd_store) == (version, containerd)
    assert state.engine.root == "/var/lib/docker"
    assert isinstance(state.image, Image)
    assert state.image.id.startswith(kind)
    (digest,) = state.image.repo_digests
    assert digest.endswith(
        "@sha256:dedbaa6f0d695a708d2a083a23c8265dd46fc7b867c6f75156821956707cc086"
    )


def test_the_idle_one_without_a_log_line() -> None:
    state = recorded("docker20_classic")
    scan = state.container("dsv4_scan")
    assert scan is not None
    assert state.last_log == {scan.id: None}


def test_releases_of_a_recorded_host() -> None:
    state = recorded("docker20_classic")
    assert not isinstance(state.releases, Unknown)
    assert [(r.number, r.state, r.open) for r in state.releases] == [
        (1, "committed", False),
        (2, "restored", False),
    ]
    assert state.numbers_used == (1, 2)


@pytest.mark.parametrize("name", ["docker20_dead_daemon", "docker26_dead_daemon"])
def test_a_dead_daemon_is_unknown_and_never_no_containers(name: str) -> None:
    """`docker info` exits 0 there, in both versions."""
    state = recorded(name)
    for seen in (state.engine, state.containers, state.image):
        assert isinstance(seen, Unknown)
        assert "Cannot connect to the Docker daemon" in seen.reason
    assert state.container("glm53") is None
    said = [r.found for r in refusals(state, guard=True)]
    assert len(said) == 2
    assert not isinstance(state.gpus, Unknown)  # what can be seen is seen
    plan = a.plan(state)
    assert plan.refused
    assert not plan.unchanged


def test_no_ss_is_unknown_and_never_nobody_listens() -> None:
    state = recorded("docker26_no_ss")
    assert state.listeners == Unknown("listeners: status 1: ss (iproute2) is not installed")
    assert not isinstance(state.containers, Unknown)


def test_a_failing_nvidia_smi_is_unknown_and_never_idle_gpus() -> None:
    state = recorded("docker26_nvidia_smi_fails")
    for seen in (state.gpus, state.gpu_apps):
        assert isinstance(seen, Unknown)
        assert "Driver/library version mismatch" in seen.reason


# Sections


def test_sections() -> None:
    text = [
        "noise",
        *("@@rollpin begin a", "1", "2", "@@rollpin end a 0"),
        *("@@rollpin begin b", "@@rollpin end b 137"),
        *("@@rollpin begin c", "3", "@@rollpin end other 0"),
        *("@@rollpin begin d", "4"),
    ]
    assert sections(text) == {"a": (0, ["1", "2"]), "b": (137, [])}


@pytest.mark.parametrize("end", ["@@rollpin end a", "@@rollpin end a ", "@@rollpin end a x", "@@r"])
def test_a_section_that_was_cut_off_is_not_there(end: str) -> None:
    assert sections(["@@rollpin begin a", "1", end]) == {}


@pytest.mark.parametrize("status", [124, 137])
def test_a_section_that_ran_out_of_time(status: int) -> None:
    state = edited("docker26_cdi", "containers", ["half a line"], status)
    assert state.containers == Unknown(f"containers: status {status}: no answer in time")


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ("engine", "engine"),
        ("containers", "containers"),
        ("image", "image"),
        ("gpus", "gpus"),
        ("gpu_apps", "gpu_apps"),
        ("listeners", "listeners"),
        ("releases", "releases"),
        ("transaction", "transaction"),
        ("displaced", "releases"),  # the history is known whole, or not at all
        ("numbers", "releases"),
    ],
)
def test_a_section_that_failed_is_unknown(section: str, field: str) -> None:
    seen = getattr(edited("docker26_cdi", section, ["boom"], 1), field)
    assert isinstance(seen, Unknown)
    assert seen.reason == f"{section}: status 1: boom"


@pytest.mark.parametrize(
    ("section", "body", "field"),
    [
        ("engine", ["no object"], "engine"),
        ("engine", ['{"ID": ""}'], "engine"),
        ("engine", ['{"ID": "x", "DockerRootDir": "/d", "ServerErrors": ["e"]}'], "engine"),
        ("containers", ['{"Id": "x"}'], "containers"),
        ("containers", ['{"Id": "x'], "containers"),
        ("gpus", ["No devices were found"], "gpus"),
        ("gpus", ["0, not-a-uuid, NVIDIA, 580, 1"], "gpus"),
        ("gpu_apps", ["[N/A], GPU-1, x;"], "gpu_apps"),
        ("listeners", ["http 1 x "], "listeners"),
        ("releases", ["glm53 1 committed 5"], "releases"),
        ("transaction", ["id=x"], "transaction"),
        ("numbers", ["one"], "releases"),
    ],
)
def test_what_is_not_understood_is_unknown(section: str, body: list[str], field: str) -> None:
    seen = getattr(edited("docker26_cdi", section, body), field)
    assert isinstance(seen, Unknown)
    assert "not understood" in seen.reason


def test_disks_and_logs_that_are_not_understood_are_not_there() -> None:
    assert edited("docker26_cdi", "disks", ["{"]).disks == {}
    assert edited("docker26_cdi", "disks", ["x"], 1).disks == {}
    assert edited("docker20_classic", "logs", ["x"], 1).last_log == {}
    odd = edited("docker20_classic", "logs", ["abc unreadable", "def 12.5", "ghi none"])
    assert odd.last_log == {
        "abc": Unknown("last log line not read: unreadable"),
        "def": 12.5,
        "ghi": None,
    }
    row = '{"path":"/a","free":"","options":"","exists":"no"}'
    assert edited("docker26_cdi", "disks", [row]).disks == {
        "/a": Unknown("df said nothing about /a")
    }


def test_absent_is_absent() -> None:
    assert edited("docker26_cdi", "containers", []).containers == ()
    assert edited("docker26_cdi", "image", []).image is None
    assert edited("docker26_cdi", "gpus", []).gpus == ()
    assert edited("docker26_cdi", "gpu_apps", []).gpu_apps == ()
    assert edited("docker26_cdi", "listeners", []).listeners == ()
    assert edited("docker26_cdi", "releases", []).releases == ()
    assert edited("docker26_cdi", "transaction", []).transaction is None


def test_a_warning_of_the_client_is_no_container() -> None:
    rows = [x for x in lines("docker26_cdi") if x.startswith('{"Id"')][:2]
    state = edited("docker26_cdi", "containers", ["WARNING: something", *rows])
    assert len(known(state)) == 2


def test_no_answer() -> None:
    for state in (parse_host_state([], "gpu1"), unreachable("gpu1", "why")):
        assert state.name == "gpu1"
        assert isinstance(state.containers, Unknown)
        assert isinstance(state.transaction, Unknown)
        assert not state.privileged
    assert len(refusals(unreachable("gpu1", "why"), guard=True)) == 4


def test_rows() -> None:
    state = edited("docker26_cdi", "gpu_apps", ["12, GPU-1, /usr/bin/a, b;c;abc", "13, GPU-2, x;"])
    assert state.gpu_apps == (
        GpuApp(12, "GPU-1", "/usr/bin/a, b;c", "abc"),
        GpuApp(13, "GPU-2", "x", ""),
    )
    state = edited("docker26_cdi", "listeners", ["80 9 nginx ", "81 - - -", "82 7 a_b abc"])
    assert state.listeners == (
        Listener(80, 9, "nginx", ""),
        Listener(81, None, "-", None),
        Listener(82, 7, "a_b", "abc"),
    )
    state = edited("docker26_cdi", "gpus", ["0, GPU-1, NVIDIA RTX, 580.1, [N/A]"])
    assert state.gpus == (Gpu("0", "GPU-1", "NVIDIA RTX", "580.1", None),)


@pytest.mark.parametrize(("lease", "left"), [("lease=1090.5", 8.8), ("lease=", -1081.7)])
def test_the_open_transaction(lease: str, left: float) -> None:
    rows = ["id=glm53-1-ab", "service=glm53", "release=1", "by=a=b", "since=then", "seconds=30"]
    body = ["uptime=1081.7" if x.startswith("uptime=") else x for x in lines("docker26_cdi")]
    section = ("@@rollpin begin transaction", *rows, lease, "@@rollpin end transaction 0")
    state = parse_host_state([*body, *section])
    found = state.transaction
    assert isinstance(found, Transaction)
    assert (found.id, found.service, found.release, found.by) == ("glm53-1-ab", "glm53", 1, "a=b")
    assert found.lease_left == pytest.approx(left)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_broken_answer_never_raises_and_never_says_more(data: st.DataObject) -> None:
    """Cut anywhere, or with lines changed: what is not whole is unknown."""
    whole = lines("docker20_classic")
    cut = data.draw(st.integers(0, len(whole)))
    text = "\n".join(whole[:cut])
    text = text[: data.draw(st.integers(0, len(text)))]
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.text(max_size=20)) + text[at:]
    state = parse_host_state(text.split("\n"))
    if not any(line.startswith("@@rollpin end containers") for line in text.split("\n")):
        assert isinstance(state.containers, Unknown)
    if not any(line.startswith("@@rollpin end numbers") for line in text.split("\n")):
        assert isinstance(state.releases, Unknown)
