"""The `docker create` command line, what a release is judged on, and command lines for people."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollpin import command_line
from rollpin.command_line import foreign_target, secret_free, target
from rollpin.plan import Target

from . import builders as a


def create(**changes: Any) -> list[str]:
    wanted = dataclasses.replace(a.profile(), **changes)
    return list(command_line.create(wanted, a.pin(a.DIGEST), "glm53.r7", 7, "f" * 64))


def values(argv: Sequence[str], flag: str) -> list[str]:
    return [argv[i + 1] for i, word in enumerate(argv) if word == flag]


def test_the_delivered_recipe() -> None:
    """What it is in full stands in the golden files."""
    argv = create()
    assert argv[:6] == ["docker", "create", "--name", "glm53.r7", "--restart", "no"]
    assert values(argv, "--label") == [
        "rollpin.service=glm53",
        "rollpin.release=7",
        f"rollpin.profile={a.DELIVERED}",
        "rollpin.fingerprint=" + "f" * 64,
    ]
    image = argv.index(f"{a.REPOSITORY}@{a.DIGEST}")
    assert argv[image + 1 :] == list(a.profile().argv)
    assert argv[-1] == '{"index_topk_freq": 4}'


@pytest.mark.parametrize(
    ("changes", "flag", "words"),
    [
        ({}, "--gpus", ["all"]),
        ({"gpus": "0,1"}, "--gpus", ['"device=0,1"']),
        ({"gpus": "none"}, "--gpus", []),
        ({}, "--network", ["host"]),
        ({}, "--publish", []),
        ({"network": "bridge"}, "--publish", ["30000:30000"]),
        ({}, "--shm-size", ["32g"]),
        ({"ipc": "host"}, "--shm-size", []),
        ({"ipc": "host"}, "--ipc", ["host"]),
        ({"stop_timeout": 90.0}, "--stop-timeout", ["90"]),
        ({"restart_policy": "always"}, "--restart", ["no"]),
        ({"ulimits": {"memlock": "-1"}}, "--ulimit", ["memlock=-1"]),
        ({"env": {"A": "b c", "E": ""}}, "--env", ["A=b c", "E="]),
        ({"env": {}, "secrets": {"HF_TOKEN": "/f"}}, "--env", ["HF_TOKEN"]),
        (
            {},
            "--volume",
            [
                "/data/hf_models:/data/hf_models:ro",
                "/data/glm53_exp/sglang_cache:/root/.cache/sglang",
                "/data/glm53_exp/fi_jit_cache:/root/.cache/flashinfer",
            ],
        ),
    ],
)
def test_options(changes: dict[str, Any], flag: str, words: list[str]) -> None:
    assert values(create(**changes), flag) == words


def test_init() -> None:
    assert "--init" in create()
    assert "--init" not in create(init=False)


def test_target() -> None:
    wanted = target(a.profile(), "id")
    assert (wanted.engine, wanted.container, wanted.name, wanted.port, wanted.network) == (
        "sglang",
        "id",
        "glm53",
        30000,
        "host",
    )
    assert (wanted.deadline, wanted.settle, wanted.expect) == (2700.0, 60.0, "42")
    assert wanted.flags["--json-model-override-args"] == ('{"index_topk_freq": 4}',)
    assert Target.from_json(wanted.to_json()) == wanted


LIKE = target(a.profile(), "id")


@pytest.mark.parametrize(
    ("argv", "engine", "port", "model"),
    [
        (a.PP4_ARGV, "sglang", 30000, "/data/hf_models/GLM-5.3-NVFP4"),
        (("vllm", "serve", "org/model", "--port=8000"), "vllm", 8000, ""),
        (("python3", "-m", "sglang.launch_server", "--model", "/m"), "sglang", 1234, "/m"),
    ],
)
def test_foreign_target(argv: tuple[str, ...], engine: str, port: int, model: str) -> None:
    found = foreign_target(a.container("x", a.PP4, *argv), LIKE, 1234)
    assert found is not None
    assert (found.engine, found.port, found.model_path) == (engine, port, model)
    assert (found.container, found.name, found.settle) == (a.PP4, "x", 0.0)
    assert (found.prompt, found.expect, found.deadline) == (LIKE.prompt, LIKE.expect, 2700.0)
    alone = foreign_target(a.container("x", a.PP4, *argv), None, 1234)
    assert alone is not None
    assert alone.expect == "42"


def test_no_engine_no_target() -> None:
    assert foreign_target(a.scan(), LIKE, 30000) is None


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (("--api-key", "k1"), "--api-key '***'"),
        (("--api-key=k1",), "'--api-key=***'"),
        (("--api-key", "k1", "k2", "--port", "1"), "--api-key '***' '***' --port 1"),
        (("--admin-api-key", "k1"), "--admin-api-key '***'"),
        (("--hf-token", "k1"), "--hf-token '***'"),
        (("--ssl-keyfile-password", "k1"), "--ssl-keyfile-password '***'"),
        (("--watermark-key-b", "k1"), "--watermark-key-b '***'"),
        (("env", "HF_TOKEN=k1", "serve"), "env 'HF_TOKEN=***' serve"),
        (("bash", "-c", "serve --api-key k1 -x"), "bash -c 'serve --api-key *** -x'"),
        (("bash", "-c", 'A_KEY="k1 k1" serve'), "bash -c 'A_KEY=*** serve'"),
        (("--tokenizer-path", "/t"), "--tokenizer-path /t"),
        (("--max-new-tokens", "9"), "--max-new-tokens 9"),
        (("--ssl-keyfile", "/k"), "--ssl-keyfile /k"),
        (("--json", '{"index_topk_freq": 4}'), "--json '{\"index_topk_freq\": 4}'"),
        (("--enable-token-usage", "x"), "--enable-token-usage x"),
    ],
)
def test_secret_free(argv: Sequence[str], shown: str) -> None:
    assert secret_free(argv) == shown
    assert "k1" not in secret_free(argv)


@given(
    st.sampled_from(("--api-key", "--hf-token", "--admin-api-key", "--ssl-keyfile-password")),
    st.from_regex(r"SEKRIT[^\0]{0,5}", fullmatch=True),
    st.lists(st.text(max_size=5), max_size=3),
)
def test_a_secret_is_never_shown(flag: str, secret: str, others: list[str]) -> None:
    assert "SEKRIT" not in secret_free((*others, flag, secret))
    assert "SEKRIT" not in secret_free((*others, f"{flag}={secret}", *others))
