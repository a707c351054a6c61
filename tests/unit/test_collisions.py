"""Who is in the way, by every spelling; the plan's tests say what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rollpin.collisions import Refusal, find, gpu_indexes, overlap, told_port
from rollpin.observe import Container, GpuApp, Listener, Unknown

from . import builders as a

IDENT = "7f" * 32


def one(*argv: str, network: str = "host", gpus: Sequence[str] = ()) -> Container:
    return a.container("one", IDENT, *argv, network=network, gpus=gpus)


@pytest.mark.parametrize(
    ("asked", "indexes"),
    [
        (("all",), {"0", "1", "2"}),
        (("1", "GPU-00000002"), {"1", "2"}),
        (("7",), {"7"}),
        ((), set()),
    ],
)
def test_gpu_indexes(asked: Sequence[str], indexes: set[str]) -> None:
    assert gpu_indexes(asked, a.gpus(3)) == indexes


@pytest.mark.parametrize(
    ("this", "that", "meet"),
    [
        (("all",), ("0",), True),
        (("all",), ("all",), True),
        (("all",), (), False),
        ((), (), False),
        (("0", "1"), ("1", "2"), True),
        (("0", "1"), ("2", "3"), False),
        (("GPU-00000001",), ("1",), True),
        (("GPU-00000001",), ("2",), False),
        (("MIG-a",), ("all",), True),
        (("MIG-a",), ("0",), True),  # which GPU it is part of is not known
        (("nvidia.com/gpu=0",), ("1",), True),
        (("9",), ("0",), False),
    ],
)
def test_overlap(this: Sequence[str], that: Sequence[str], meet: bool) -> None:
    assert overlap(this, that, a.gpus(3)) is meet
    assert overlap(that, this, a.gpus(3)) is meet


def test_all_meets_all_where_no_gpu_is_known() -> None:
    assert overlap(("all",), ("0",), ())
    assert overlap(("0",), ("0",), ())


@pytest.mark.parametrize(
    ("container", "port"),
    [
        (one("serve", "--port", "30000"), 30000),
        (one("serve", "--port=30000"), 30000),
        (one("serve", "--port", "30000", network="bridge"), None),
        (one("serve"), None),
        (one("serve", "--port", "http"), None),
    ],
)
def test_told_port(container: Container, port: int | None) -> None:
    assert told_port(container) == port


def test_every_reason_is_named_once() -> None:
    state = a.host(a.production())
    collisions, refusals = find(state, "glm53-pp4", 30000, ("all",), ())
    assert refusals == []
    assert [(c.container.id, c.reasons) for c in collisions] == [
        (
            a.PP4,
            ("bears the name glm53-pp4", "is told to listen on port 30000", "asks for GPUs all"),
        )
    ]


def test_our_own_are_not_in_the_way() -> None:
    assert find(a.host(a.production()), "glm53", 30000, ("all",), {a.PP4}) == ([], [])


def test_no_container_is_in_the_way_of_a_service_without_gpus_and_another_port() -> None:
    assert find(a.host(a.production()), "glm53", 30001, (), ()) == ([], [])


def test_the_empty_id_of_a_run_that_staged_nothing_owns_nothing() -> None:
    state = a.host(
        listeners=(Listener(30000, 9, "nginx", ""),),
        gpu_apps=(GpuApp(8, "GPU-00000000", "x", ""),),
    )
    assert len(find(state, "glm53", 30000, ("0",), {""})[1]) == 2


def test_unknown_containers_say_nothing_else() -> None:
    collisions, refusals = find(a.host(containers=Unknown("x")), "s", 1, ("all",), ())
    assert collisions == []
    assert [r.found for r in refusals] == ["the containers could not be observed (x)"]


def test_a_refusal_says_three_things() -> None:
    assert str(Refusal("found", "means", "Do it.")) == "found: means. Do it."
