"""What engines answer and how it is judged, against answers recorded from real ones."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollpin import engine_flags
from rollpin.command_line import target
from rollpin.engines import ENGINES
from rollpin.engines.base import chat_request, judge_generation, read_stream
from rollpin.plan import Target

from . import builders as a

# Recorded from SGLang 0.5.23 on a CPU, cut down to the keys that matter.
INFO = json.loads(
    (Path(__file__).parent / "fixtures" / "sglang-0.5.23_server_info.json").read_text()
)
SGLANG, VLLM = ENGINES["sglang"], ENGINES["vllm"]


def launched(command: str = INFO["launch_command"], **changes: Any) -> Target:
    """What is judged when SGLang was launched with this command line."""
    argv = ("python3", "-m", "sglang.launch_server", *command.split())
    like = dataclasses.replace(
        target(a.profile(), "id"),
        flags=engine_flags.flags(argv),
        model_path=engine_flags.value(argv, "--model-path") or "",
    )
    return dataclasses.replace(like, **changes)


def info(**changes: Any) -> dict[str, Any]:
    return {**INFO, **changes}


def test_every_engine_of_a_profile_is_known() -> None:
    assert set(ENGINES) == {"sglang", "vllm"}
    for engine in ENGINES.values():
        assert engine.ready_path.startswith("/")
        assert engine.ready_marker
        assert all(p.startswith("/") for p in engine.identity_paths)


def test_the_real_server_agrees_with_its_own_command_line() -> None:
    assert SGLANG.identity("/server_info", INFO, launched()) == []
    assert SGLANG.identity("/model_info", INFO, launched()) == []


@pytest.mark.parametrize(
    ("command", "contradictions"),
    [
        ("--model-path /models/other", ["model /models/tinylong, planned is /models/other"]),
        ("--tp 2", ["tp_size is 1, asked for was '2'"]),
        ("--tensor-parallel-size=2", ["tp_size is 1, asked for was '2'"]),
        ("--pp-size 4", ["pp_size is 1, asked for was '4'"]),
        ("--mem-fraction-static 0.85", ["mem_fraction_static is 0.1, asked for was '0.85'"]),
        ("--mem-fraction-static 0.10", []),
        ("--max-running-requests eight", ["max_running_requests is 8, asked for was 'eight'"]),
        ("--disable-radix-cache", ["disable_radix_cache is False, asked for was 'true'"]),
        ("--kv-cache-dtype auto", []),
        ("--quantization fp8", ["quantization is None, asked for was 'fp8'"]),
        ("--tp 2 --pp 2", ["tp_size", "pp_size"]),
        ("--unheard-of 7", []),
    ],
)
def test_contradictions(command: str, contradictions: list[str]) -> None:
    wanted = launched(command) if "model" in command else launched(command, model_path="")
    said = SGLANG.identity("/server_info", INFO, wanted)
    assert len(said) == len(contradictions), said
    for words, text in zip(contradictions, said, strict=True):
        assert words in text


@pytest.mark.parametrize(
    ("answer", "command", "good"),
    [
        (info(disable_flashinfer_autotune=True), "", True),  # the engine chose by itself
        (info(disable_flashinfer_autotune=False), "--disable-flashinfer-autotune", False),
        (info(disable_flashinfer_autotune=True), "--disable-flashinfer-autotune", True),
        (info(moe_runner_backend="flashinfer_cutlass"), "--moe-runner-backend auto", True),
        (info(json_model_override_args='{"index_topk_freq": 4}'), "", True),
        ({"version": "0.5.14"}, "--tp-size 2 --disable-radix-cache", True),  # says nothing
    ],
)
def test_what_was_not_asked_for(answer: dict[str, Any], command: str, good: bool) -> None:
    said = SGLANG.identity("/server_info", answer, launched(command, model_path=""))
    assert (said == []) is good


@pytest.mark.parametrize(
    ("said", "good"),
    [
        ('{"index_topk_freq": 4}', True),
        ('{"index_topk_freq":4}', True),
        ({"index_topk_freq": 4}, True),
        ('{"index_topk_freq": 5}', False),
        ("{}", False),
        ("not json", False),
    ],
)
def test_json_arguments_are_compared_as_json(said: object, good: bool) -> None:
    wanted = target(a.profile(), "id")
    answer = {"json_model_override_args": said}
    assert (SGLANG.identity("/server_info", answer, wanted) == []) is good


def test_the_delivered_recipe_against_a_server_that_runs_it() -> None:
    answer = {
        "model_path": "/data/hf_models/GLM-5.3-NVFP4",
        "tp_size": 2,
        "pp_size": 4,
        "mem_fraction_static": 0.85,
        "port": 30000,
        "max_running_requests": 48,
        "chunked_prefill_size": 16384,
        "disable_radix_cache": True,
        "disable_custom_all_reduce": True,
        "disable_flashinfer_autotune": False,
        "moe_runner_backend": "flashinfer_cutlass",
        "json_model_override_args": '{"index_topk_freq": 4}',
    }
    wanted = target(a.profile(), "id")
    assert SGLANG.identity("/server_info", answer, wanted) == []
    for name in answer.keys() - {"disable_flashinfer_autotune"}:
        wrong = {**answer, name: "wrong"}
        assert len(SGLANG.identity("/server_info", wrong, wanted)) == 1, name


@pytest.mark.parametrize("answer", [None, [], "text", 3])
def test_an_answer_that_is_no_object(answer: object) -> None:
    assert SGLANG.identity("/server_info", answer, launched()) == [
        "/server_info answered no JSON object"
    ]
    assert VLLM.identity("/v1/models", answer, launched()) == ["/v1/models names no model"]


def test_the_flags_are_not_asked_of_model_info() -> None:
    assert SGLANG.identity("/model_info", {"tp_size": 9}, launched()) == []


def test_vllm() -> None:
    wanted = launched(model_path="org/model")
    good = {"data": [{"id": "served", "root": "org/model"}]}
    assert VLLM.identity("/v1/models", good, wanted) == []
    other = {"data": [{"id": "served", "root": "org/other"}, "odd"]}
    assert "planned is org/model" in VLLM.identity("/v1/models", other, wanted)[0]
    assert VLLM.identity("/v1/models", {"data": []}, wanted) == ["/v1/models names no model"]


def test_the_model_to_ask_for() -> None:
    for engine in ENGINES.values():
        assert engine.model_name(launched()) == "tiny"
        assert engine.model_name(launched("--model-path /m")) == "/m"


def test_the_request_is_short_and_deterministic() -> None:
    request = chat_request("m", "p")
    assert (request["temperature"], request["stream"]) == (0, True)
    assert request["max_tokens"] <= 256
    assert request["messages"] == [{"role": "user", "content": "p"}]


# Generations


def stream(*deltas: Mapping[str, object], finish: str | None = "stop", done: bool = True) -> str:
    events: list[object] = [
        {"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas
    ]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    lines = [f"data: {json.dumps(e)}\n" for e in events]
    return "\n".join([*lines, "data: [DONE]\n" if done else ""])


ROLE = {"role": "assistant", "content": "", "reasoning_content": None}


def test_a_stream_is_put_together() -> None:
    body = stream(ROLE, {"content": "4"}, {"content": "2"})
    assert read_stream(body) == ("42", "stop", True)
    assert judge_generation(200, body, "42") is None


def test_reasoning_is_text_too() -> None:
    body = stream({"reasoning_content": "7 x 6 = "}, {"content": "42", "reasoning_content": None})
    assert read_stream(body)[0] == "7 x 6 = 42"


def test_usage_comments_and_carriage_returns_are_no_trouble() -> None:
    usage = 'data: {"choices": [], "usage": {"total_tokens": 9}}\n\n'
    body = ": ping\n\n" + usage + stream({"content": "42"})
    assert judge_generation(200, body, "42") is None
    assert judge_generation(200, body.replace("\n", "\r\n"), "42") is None


@pytest.mark.parametrize(
    ("status", "body", "expect", "reason"),
    [
        (503, "warming up\n", "42", "status 503: warming up"),
        (200, "", "42", "an empty answer"),
        (200, stream({"content": " \n"}), "42", "an empty answer"),
        (200, stream({"content": "41"}), "42", "answered '41', not '42'"),
        (200, stream({"content": "142"}), "42", "answered '142', not '42'"),
        (200, stream({"content": "42"}, finish=None), "42", "the stream broke off after '42'"),
        (200, stream({"content": "42"}, done=False), "42", "the stream broke off after '42'"),
        (200, stream({"content": "42"})[:80], "42", "an empty answer"),
        (200, '{"choices": [{"message": {"content": "42"}}]}', "42", "an empty answer"),
        (200, 'data: {"error": {"message": "boom"}}\n\ndata: [DONE]\n', "42", "an empty answer"),
    ],
)
def test_bad_generations(status: int, body: str, expect: str, reason: str) -> None:
    assert judge_generation(status, body, expect) == reason


def test_an_empty_expectation_takes_any_text() -> None:
    assert judge_generation(200, stream({"content": "whatever"}), "") is None


@given(st.text())
def test_garbage_is_never_good_and_never_raises(body: str) -> None:
    assert judge_generation(200, body, "42") is not None


@given(st.lists(st.text(max_size=5), max_size=6))
def test_every_piece_of_a_stream_arrives(pieces: list[str]) -> None:
    body = stream(*({"content": piece} for piece in pieces))
    assert read_stream(body) == ("".join(pieces), "stop", True)
