"""Fixtures on the running lab: the one that ROLLPIN_LAB names, brought up when it is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollpin.lab import images, state, up
from rollpin.lab.host import Host, hosts
from rollpin.lab.state import Lab
from tests.lab.deploying import Deployer

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below tests/lab needs a lab."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.lab)


@pytest.fixture(scope="session")
def lab() -> Lab:
    """A lab that is up and whole, with three hosts or more. It stays up after the tests."""
    name = state.default_name()
    return up.up(name, None if state.exists(name) else 3)


@pytest.fixture(scope="session")
def deployer(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    """Runs pyinfra on the lab; each run has a folder of its own."""
    return Deployer(lab, tmp_path_factory.mktemp("deploys"))


@pytest.fixture(scope="session")
def all_hosts(lab: Lab) -> list[Host]:
    """Every host, as the tests before left it."""
    return hosts(lab)


@pytest.fixture
def host(all_hosts: list[Host]) -> Host:
    """lab1 (Docker 20.10, `dsv4_scan` stands there), as `lab up` left it."""
    all_hosts[0].reset()
    return all_hosts[0]


@pytest.fixture
def cdi_host(all_hosts: list[Host]) -> Host:
    """lab2 (Docker 26.1 with CDI), as `lab up` left it."""
    all_hosts[1].reset()
    return all_hosts[1]


@pytest.fixture
def containerd_host(all_hosts: list[Host]) -> Host:
    """lab3 (Docker 26.1, containerd image store), as `lab up` left it."""
    all_hosts[2].reset()
    return all_hosts[2]


@pytest.fixture
def image(lab: Lab) -> str:
    """The production image, as the hosts name it; they have it."""
    return f"{lab.registry}/lmsysorg/sglang:{images.NIGHTLY}"
