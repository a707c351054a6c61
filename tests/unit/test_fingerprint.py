"""The fingerprint changes with what runs, and with nothing else."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollpin.fingerprint import fingerprint, short
from rollpin.profile import Profile

LINES = (
    "SERVICE=glm53",
    "ENGINE=sglang",
    "HARDWARE=pro6000",
    "IMAGE=lmsysorg/sglang:latest",
    "PIN=sha256:" + "a" * 64,
    "COMMAND=python3 -m sglang.launch_server --model-path /m/x --port 30000 --tp-size 2",
    "MOUNT_MODELS=/m:/m:ro",
    "CACHE_A=/c/a:/root/a",
    "CACHE_B=/c/b:/root/b",
    "ENV_A=1",
    "ENV_B=2",
    "ULIMIT_MEMLOCK=-1",
    "SECRET_TOKEN=/etc/token",
    "DISPLACES=old:idle=45m",
)


def of(*lines: str, path: str = "a.env") -> str:
    return fingerprint(Profile.parse("\n".join(lines), path))


BASE = of(*LINES)


def changed(old: str, new: str) -> str:
    assert any(old in line for line in LINES)
    return of(*(line.replace(old, new) for line in LINES))


def test_form() -> None:
    assert len(BASE) == 64
    assert short(BASE) == BASE[:12]


def test_it_is_stable_across_versions_of_rollpin() -> None:
    """A new value here makes every running release look changed: raise `format` knowingly."""
    assert BASE == "6029850cb34386ab3592e7c9e1796ef72b0984838a61f3fcac864fcbe93339cb"


@given(
    st.permutations(LINES),
    st.lists(st.text(alphabet=st.characters(categories=["L", "N", "P"])), max_size=5),
)
def test_order_and_comments_do_not_count(lines: list[str], comments: list[str]) -> None:
    written = [*(f"# {comment}" for comment in comments), "", *lines]
    assert of(*written, path="elsewhere/b.env") == BASE


@pytest.mark.parametrize(
    "line",
    [
        "NOTES=other",
        "REQUIRES=something",
        "START_DEADLINE=1h",
        "STOP_TIMEOUT=1s",
        "SETTLE=1s",
        "GUARD=off",
        "GUARD_LEASE=5s",
        "HEALTH_EXPECT=43",
        "PORT=30000",
        "SHM_SIZE=32768m",
        "GPUS=all",
    ],
)
def test_what_does_not_run_does_not_count(line: str) -> None:
    assert of(*LINES, line) == BASE


def test_labels_displaced_secret_files_and_tags_of_a_pinned_image_do_not_count() -> None:
    assert changed("CACHE_A", "CACHE_Z") == BASE
    assert changed("idle=45m", "idle=1s") == BASE
    assert changed("/etc/token", "/etc/other") == BASE
    assert changed("sglang:latest", "sglang:dev") == BASE
    assert changed("MEMLOCK=-1", "MEMLOCK=-1:-1") == BASE


@pytest.mark.parametrize(
    "line",
    [
        "GPUS=0,1",
        "NETWORK=bridge",
        "IPC=host",
        "SHM_SIZE=16g",
        "INIT=no",
        "RESTART_POLICY=no",
        "LOG_MAX_SIZE=1m",
        "LOG_MAX_FILE=2",
        "ULIMIT_STACK=67108864",
        "MOUNT_MORE=/x:/y",
        "CACHE_MORE=/x:/y",
        "ENV_MORE=",
        "SECRET_MORE=/x",
    ],
)
def test_what_runs_counts(line: str) -> None:
    assert of(*LINES, line) != BASE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lmsysorg", "other"),
        ("a" * 64, "b" * 64),
        ("30000", "30001"),
        ("/m:ro", "/m:rw"),
        ("CACHE_A", "MOUNT_A"),
        ("MEMLOCK=-1", "MEMLOCK=1"),
    ],
)
def test_changed_values_count(old: str, new: str) -> None:
    assert changed(old, new) != BASE


def test_the_tag_counts_without_a_pin() -> None:
    bare = [line for line in LINES if not line.startswith("PIN")]
    tags = {of(*(line.replace("latest", tag) for line in bare)) for tag in ("latest", "dev")}
    assert len(tags | {BASE}) == 3


PROFILE = Profile.parse("\n".join(LINES), "a.env")
WORDS = st.lists(st.text(), min_size=1).map(tuple)
ENVS = st.dictionaries(st.text(), st.text())


@given(WORDS, WORDS)
def test_any_change_of_argv_counts(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    prints = [fingerprint(dataclasses.replace(PROFILE, argv=argv)) for argv in (one, other)]
    assert (prints[0] == prints[1]) == (one == other)


@given(ENVS, ENVS)
def test_any_change_of_env_counts(one: dict[str, str], other: dict[str, str]) -> None:
    prints = [fingerprint(dataclasses.replace(PROFILE, env=env)) for env in (one, other)]
    assert (prints[0] == prints[1]) == (one == other)
