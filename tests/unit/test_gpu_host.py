"""What a GPU host must be, decided from inventory data and from what is there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollpin.errors import UsageError
from rollpin.gpu_host import (
    GpuHost,
    User,
    disk_refusal,
    flags_in_the_way,
    from_data,
    with_log_limits,
)


def test_data_is_read() -> None:
    assert from_data({}) == GpuHost()
    wanted = from_data(
        {
            "data_disk": "/srv/data",
            "own_disk": False,
            "log_max_size": "1g",
            "log_max_file": 2,
            "users": {"ops": {"docker": True, "public_keys": "ssh-ed25519 A"}, "reader": {}},
        }
    )
    users = (User("ops", docker=True, public_keys=("ssh-ed25519 A",)), User("reader"))
    assert wanted == GpuHost("/srv/data", False, "1g", 2, users)


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(UsageError) as told:
        from_data(
            {
                "data_disc": "/data",
                "own_disk": "no",
                "log_max_size": "100 MB",
                "log_max_file": 0,
                "users": {"ops; rm": {}, "ops": {"root": True}},
            }
        )
    assert str(told.value).splitlines() == [
        "gpu_host: data_disc is not known (nearest: data_disk)",
        "gpu_host own_disk: must be True or False, not 'no'",
        "gpu_host users: 'ops; rm' is no name for a user",
        "gpu_host users ops: root is not known (nearest: sudo)",
        "gpu_host log_max_size: '100 MB' is no size like 100m",
        "gpu_host log_max_file: 0 is no number from 1 on",
    ]


@pytest.mark.parametrize("data", [None, [], "x"])
def test_what_is_no_dictionary(data: Any) -> None:
    with pytest.raises(UsageError, match="must be a dictionary"):
        from_data(data)


def test_log_limits_are_merged() -> None:
    limits = {"max-size": "100m", "max-file": "5"}
    assert json.loads(with_log_limits(None, "100m", 5) or "") == {"log-opts": limits}
    assert json.loads(with_log_limits(" \n", "100m", 5) or "") == {"log-opts": limits}
    there = {"live-restore": True, "log-opts": {"max-size": "1g", "compress": "true"}}
    merged = with_log_limits(json.dumps(there), "100m", 5)
    assert merged is not None
    assert json.loads(merged) == {
        "live-restore": True,
        "log-opts": {"compress": "true", **limits},
    }
    assert with_log_limits(merged, "100m", 5) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[]", "not an object"),
        ('{"log-opts": []}', "not an object"),
        ('{"log-driver": "journald"}', "log-driver journald knows no max-size"),
    ],
)
def test_a_daemon_json_that_is_left_alone(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        with_log_limits(text, "100m", 5)


def test_flags_that_daemon_json_must_not_repeat() -> None:
    assert flags_in_the_way(["/usr/sbin/dockerd -H fd://", "sh -c --log-opt"]) is None
    assert flags_in_the_way(["/usr/sbin/dockerd --log-opt max-size=1m"]) is not None


@pytest.mark.parametrize(
    ("mount", "options", "own_disk", "why"),
    [
        ("/data", "rw,relatime", True, None),
        ("/", "rw", True, "root disk"),
        ("/", "rw", False, None),
        ("/data", "rw,nosuid,noexec", True, "noexec"),
        ("/data", "ro", True, "read-only"),
    ],
)
def test_the_data_disk(mount: str, options: str, own_disk: bool, why: str | None) -> None:
    said = disk_refusal("/data/x", mount, options, own_disk)
    assert (said is None) if why is None else (said is not None and why in said)
