"""What `docker inspect` says of a container, in every spelling."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollpin.observe import (
    Container,
)
from rollpin.observe_parse import container

from . import builders as a


def inspect(**host: Any) -> Container:
    return a.container("x", a.PP4, gpus=(), **host)


@pytest.mark.parametrize(
    ("host", "env", "gpus"),
    [
        ({}, (), ()),
        ({"DeviceRequests": [{"Count": -1, "DeviceIDs": None}]}, (), ("all",)),
        ({"DeviceRequests": [{"Count": 2}]}, (), ("all",)),  # which two is not known
        ({"DeviceRequests": [{"Count": 0, "DeviceIDs": ["0", "GPU-1"]}]}, (), ("0", "GPU-1")),
        ({"DeviceRequests": [{"Count": 0, "DeviceIDs": []}]}, (), ()),
        (
            {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]},
            (),
            ("all",),
        ),
        (
            {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=3", "x/y=1"]}]},
            (),
            ("3",),
        ),
        ({"Runtime": "nvidia"}, ("NVIDIA_VISIBLE_DEVICES=all",), ("all",)),
        ({"Runtime": "nvidia"}, ("NVIDIA_VISIBLE_DEVICES=0, 1",), ("0", "1")),
        ({"Runtime": "nvidia"}, ("NVIDIA_VISIBLE_DEVICES=none",), ()),
        ({"Runtime": "nvidia"}, ("NVIDIA_VISIBLE_DEVICES=void",), ()),
        ({"Runtime": "nvidia"}, (), ()),
        ({"Runtime": "runc"}, ("NVIDIA_VISIBLE_DEVICES=all",), ()),
        ({"Devices": [{"PathOnHost": "/dev/nvidia0"}]}, (), ("all",)),
        ({"Devices": [{"PathOnHost": "/dev/fuse"}]}, (), ()),
        ({"Privileged": True}, (), ("all",)),
        (
            {"Privileged": True, "DeviceRequests": [{"Count": 0, "DeviceIDs": ["0"]}]},
            (),
            ("0", "all"),
        ),
    ],
)
def test_every_way_to_ask_for_gpus(
    host: dict[str, Any], env: tuple[str, ...], gpus: tuple[str, ...]
) -> None:
    value = {**inspect(**host).record}
    value["Config"] = {**value["Config"], "Env": list(env)}
    assert container(value).gpus == gpus


@pytest.mark.parametrize(
    ("policy", "read"),
    [
        ({"Name": "", "MaximumRetryCount": 0}, "no"),
        ({"Name": "no"}, "no"),
        ({"Name": "always"}, "always"),
        ({"Name": "on-failure", "MaximumRetryCount": 3}, "on-failure:3"),
        ({"Name": "on-failure", "MaximumRetryCount": 0}, "on-failure"),
        (None, "no"),
    ],
)
def test_policies(policy: dict[str, Any] | None, read: str) -> None:
    assert inspect(RestartPolicy=policy).policy == read


def test_ports() -> None:
    bindings = {
        "80/tcp": [{"HostIp": "", "HostPort": "8080"}, {"HostIp": "::", "HostPort": "8080"}],
        "81/tcp": None,
        "82/tcp": [{"HostIp": "", "HostPort": ""}],
        "83/tcp": [{"HostPort": "83"}],
    }
    assert inspect(PortBindings=bindings).ports == (83, 8080)


@pytest.mark.parametrize(
    ("status", "alive"),
    [
        ("running", True),
        ("paused", True),
        ("restarting", True),
        ("created", False),
        ("exited", False),
        ("dead", False),
        ("removing", False),
    ],
)
def test_alive(status: str, alive: bool) -> None:
    assert inspect(status=status).alive is alive


def test_a_container_is_its_record(tmp_path: Path) -> None:
    read: Callable[[str], Any] = json.loads
    c = a.production()
    assert container(read(json.dumps(c.record))) == c
