"""The lab engine as a real process, held to what was recorded of a real SGLang."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .lab_engine import PATIENCE, QUESTION, READY, Engine, Start


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "GLM-5.3-NVFP4"
    folder.mkdir()
    config = {
        "architectures": ["GlmMoeDsaForCausalLM"],
        "model_type": "glm_moe_dsa",
        "max_position_embeddings": 202752,
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    header = json.dumps({"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    shard = len(header).to_bytes(8, "little") + header + b"abcd"
    (folder / "model-00001-of-00001.safetensors").write_bytes(shard)
    index = {"weight_map": {"w": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.fixture
def start(model: Path, tmp_path: Path) -> Iterator[Start]:
    engines: list[Engine] = []

    def begin(*flags: str, model: Path = model, **options: Any) -> Engine:
        engines.append(Engine(model, tmp_path, *flags, **options))
        return engines[-1]

    yield begin
    for engine in engines:
        engine.end()


@pytest.fixture(scope="module")
def served(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One engine for the tests that only ask."""
    home = tmp_path_factory.mktemp("home")
    engine = Engine(
        model,
        home,
        *("--served-model-name", "glm", "--api-key", "k1", "--enable-metrics"),
        ROLLPIN_LAB_SGLANG_VERSION="0.5.23",
    )
    engine.wait()
    yield engine
    engine.end()


# --- a start ------------------------------------------------------------------------------------


def test_markers_in_order(start: Start) -> None:
    engine = start()
    engine.wait()
    log = engine.log()
    markers = [
        "server_args={",
        "Load weight begin. avail mem=",
        "Load weight end. elapsed=",
        "Memory pool end. avail mem=",
        "Running FlashInfer autotune with cache: ",
        "FlashInfer autotune completed.",
        "CUDA graph begin",
        "CUDA graph end. bs=[",
        "max_total_num_tokens=1040384, ",
        "Engine startup timings (s): ",
        "Uvicorn running on http://127.0.0.1:",
        '"POST /generate HTTP/1.1" 200 OK',
        READY,
    ]
    places = [log.find(marker) for marker in markers]
    assert -1 not in places, dict(zip(markers, places, strict=True))
    assert places == sorted(places)
    assert log.count("Load weight end") == 8
    assert "PP3 TP1] Load weight begin" in log


def test_503_in_warm_up_while_static_routes_answer(start: Start) -> None:
    engine = start(ROLLPIN_LAB_FAULT="never-ready", ROLLPIN_LAB_SGLANG_VERSION="0.5.23")
    engine.wait("GET /model_info")
    for path in ("/health", "/health_generate", "/ready", "/ping"):
        assert engine.ask(path)[0] == 503, path
    for path in ("/v1/models", "/model_info", "/server_info"):
        assert engine.ask(path)[0] == 200, path
    assert READY not in engine.log()


def test_old_version_has_no_ready_and_a_constant_ping(start: Start) -> None:
    engine = start(ROLLPIN_LAB_FAULT="never-ready", ROLLPIN_LAB_SGLANG_VERSION="0.5.19")
    engine.wait("Uvicorn running")
    assert engine.ask("/ready") == (404, '{"detail":"Not Found"}')
    assert engine.ask("/ping")[0] == 200


def test_refuses_connections_before_the_load_is_done(start: Start) -> None:
    engine = start(ROLLPIN_LAB_FAULT="slow:60")
    engine.wait("Load weight begin")
    with pytest.raises(ConnectionRefusedError):
        engine.ask("/health")
    engine.process.send_signal(signal.SIGTERM)
    assert engine.exit_code() == -signal.SIGTERM


def test_bad_flag_exits_2(start: Start) -> None:
    engine = start("--no-such-flag")
    assert engine.exit_code() == 2
    assert engine.lines[-1] == "sglang serve: error: unrecognized arguments: --no-such-flag"
    assert any(line.startswith("usage: sglang serve") for line in engine.lines)


def test_missing_model_exits_1(start: Start, tmp_path: Path) -> None:
    engine = start(model=tmp_path / "nothing")
    assert engine.exit_code() == 1
    assert "server_args=" not in engine.log()


def test_no_weights_kills_the_tree(start: Start, model: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_text((model / "config.json").read_text())
    engine = start(model=bare)
    assert engine.exit_code() == -signal.SIGKILL
    assert "Cannot find any model weights with" in engine.log()
    assert "Received sigquit from a child process." in engine.log()


def test_key_is_in_clear_in_the_log(served: Engine) -> None:
    assert "'api_key': 'k1'" in served.wait("server_args=")


# --- answers ------------------------------------------------------------------------------------

KEY = "k1"


def test_health_runs_a_generation(served: Engine) -> None:
    for path in ("/health", "/health_generate", "/ready"):
        assert served.ask(path)[0] == 200


@pytest.mark.parametrize("path", ["/ping", "/v1/models", "/model_info", "/server_info", "/"])
def test_key_is_asked_for(served: Engine, path: str) -> None:
    assert served.ask(path) == (401, '{"error":"Unauthorized"}')
    assert served.ask(path, key=KEY)[0] == 200


def test_identity(served: Engine, model: Path) -> None:
    info = json.loads(served.ask("/model_info", key=KEY)[1])
    assert (info["model_path"], info["served_model_name"]) == (str(model), "glm")
    server = json.loads(served.ask("/server_info", key=KEY)[1])
    assert server["max_total_num_tokens"] == 1040384
    assert (server["tp_size"], server["pp_size"], server["api_key"]) == (2, 4, "k1")
    assert server["json_model_override_args"] == '{"index_topk_freq": 4}'
    assert server["quantization"] == "modelopt_fp4"
    assert "--api-key k1" in server["launch_command"]
    assert server["startup_time"]["tokenizer_e2e"] > server["startup_time"]["load_weight"]
    card = json.loads(served.ask("/v1/models", key=KEY)[1])["data"][0]
    assert (card["id"], card["root"], card["max_model_len"]) == ("glm", "glm", 202752)
    assert served.ask("/v1/models/nope", key=KEY)[0] == 404
    assert served.ask("/version", key=KEY)[0] == 404


def test_metrics(served: Engine) -> None:
    assert "\nsglang:max_total_num_tokens{" in served.ask("/metrics")[1]


def test_streamed_chat_is_right_and_ends(served: Engine) -> None:
    messages = [{"role": "user", "content": QUESTION}]
    body = {"model": "glm", "messages": messages, "stream": True, "temperature": 0}
    status, text = served.ask("/v1/chat/completions", body, key=KEY)
    assert status == 200
    *events, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
    assert "".join(choice["delta"]["content"] or "" for choice in choices) == "42"
    assert [choice["finish_reason"] for choice in choices] == [None, None, "stop"]


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        (QUESTION, "42"),
        ("12 plus 30?", "42"),
        ("50 - 8", "42"),
        ("What is the capital of France?", "Paris"),
        ("Count from 1 to 5", "1, 2, 3, 4, 5"),
        ("hi there", "hi there"),
    ],
)
def test_answers(served: Engine, prompt: str, answer: str) -> None:
    body = {"messages": [{"role": "user", "content": prompt}]}
    chat = json.loads(served.ask("/v1/chat/completions", body, key=KEY)[1])
    assert chat["choices"][0]["message"]["content"] == answer
    assert chat["choices"][0]["finish_reason"] == "stop"


def test_completion_repeats_as_recorded(served: Engine) -> None:
    body = {"model": "tiny", "prompt": "hello world", "max_tokens": 4, "temperature": 0}
    answer = json.loads(served.ask("/v1/completions", body, key=KEY)[1])
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (" world world world world", "length")
    assert answer["usage"]["total_tokens"] == 6
    assert answer["model"] == "tiny"  # a wrong name is answered and echoed
    status, text = served.ask("/v1/completions", body | {"max_tokens": 9999999}, key=KEY)
    assert (status, json.loads(text)["type"]) == (400, "BadRequestError")


def test_generate(served: Engine) -> None:
    body = {"text": "hello", "sampling_params": {"max_new_tokens": 2, "temperature": 0}}
    answer = json.loads(served.ask("/generate", body, key=KEY)[1])
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 2}
    assert answer["meta_info"]["completion_tokens"] == 2


# --- ends ---------------------------------------------------------------------------------------


def test_drain(start: Start) -> None:
    engine = start(ROLLPIN_LAB_TOKEN_SECONDS="0.01")
    engine.wait()
    endings: list[tuple[int, str]] = []
    body = {"prompt": "a b", "max_tokens": 150, "ignore_eos": True}
    asking = threading.Thread(target=lambda: endings.append(engine.ask("/v1/completions", body)))
    asking.start()
    engine.wait("#new-token: 2,")
    engine.process.send_signal(signal.SIGTERM)
    engine.wait("SIGTERM received. signum=None frame=None. Draining requests")
    assert engine.ask("/health")[0] == 503
    assert engine.chat(QUESTION)[0] == 200  # new requests are still accepted
    asking.join(PATIENCE)
    assert endings[0][0] == 200
    assert json.loads(endings[0][1])["usage"]["completion_tokens"] == 150
    assert engine.exit_code() == 0
    assert "Gracefully exiting... Remaining number of requests 0." in engine.log()
    assert "Finished server process" in engine.lines[-1]


def test_sigint_exits_0(start: Start) -> None:
    engine = start()
    engine.wait()
    engine.process.send_signal(signal.SIGINT)
    assert engine.exit_code() == 0


def test_port_of_another_engine(start: Start) -> None:
    first = start()
    first.wait()
    second = start(port=first.port)
    second.wait("[Errno 98] error while attempting to bind on address ('127.0.0.1', ")
    second.wait(READY)
    assert second.exit_code() == 3
    assert first.log().count("POST /generate") == 2
    assert first.ask("/health")[0] == 200


def test_killed_scheduler_ends_the_engine(start: Start) -> None:
    engine = start(ROLLPIN_LAB_FAULT="crash-after:0.1")
    engine.wait("Subprocess scheduler_0 (pid=")
    with pytest.raises((http.client.HTTPException, OSError)):
        engine.ask("/v1/models")  # accepted or refused, never answered
    assert engine.exit_code() == -signal.SIGKILL
    assert "No live scheduler processes found; skipping py-spy" in engine.log()


# --- as PID 1 of a container, without --init ----------------------------------------------------

AS_PID_1 = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")


@needs_root
@pytest.mark.parametrize("fault", ["crash-load", "crash-after:0.1"])
def test_a_crash_as_pid_1_exits_0(start: Start, fault: str) -> None:
    engine = start(wrapper=AS_PID_1, ROLLPIN_LAB_FAULT=fault)
    assert engine.exit_code() == 0
    assert "kill_process_tree called: parent_pid=1, include_parent=True" in engine.log()


@needs_root
def test_sigterm_while_loading_as_pid_1_is_ignored(start: Start) -> None:
    engine = start(wrapper=AS_PID_1, ROLLPIN_LAB_FAULT="slow:1")
    engine.wait("Load weight begin")
    children = f"/proc/{engine.process.pid}/task/{engine.process.pid}/children"
    os.kill(int(Path(children).read_text()), signal.SIGTERM)
    engine.wait()
    assert "SIGTERM received" not in engine.log()


@needs_root
def test_noexec_cache_kills_the_tree(start: Start, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    mount = f'mount -t tmpfs -o noexec none {tmp_path}/cache && exec "$@"'
    engine = start(
        wrapper=("unshare", "--mount", "sh", "-c", mount, "sh"),
        SGLANG_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert engine.exit_code() == -signal.SIGKILL
    assert "failed to map segment from shared object: Operation not permitted" in engine.log()


# --- caches -------------------------------------------------------------------------------------


def test_cache_files_and_a_warm_start(start: Start, tmp_path: Path) -> None:
    cold = start()
    cold.wait()
    root = tmp_path / ".cache" / "sglang"
    tactics = sorted(root.glob("flashinfer/autotune/0.6.18/sm120/*/rank_tp*_pp*_dp0.json"))
    assert len(tactics) == 8
    assert len(tactics[0].parent.name) == 16
    assert len(list(root.glob(".cache/flashinfer/0.6.18/120f/cached_ops/*/*.so"))) == 4
    assert "configs from" not in cold.log()
    kept = [path.read_bytes() for path in tactics]
    cold.end()

    warm = start()
    warm.wait()
    assert warm.log().count("[Autotuner]: Loaded 4 configs from") == 8
    assert "compiling" not in warm.log()
    assert [path.read_bytes() for path in tactics] == kept
    warm.end()

    tactics[3].write_bytes(b'{"draw": "another"}')
    mixed = start()
    mixed.wait()
    assert "per-rank caches disagree, discarding them" in mixed.log()


def test_old_version_keeps_kernels_in_their_old_home(start: Start, tmp_path: Path) -> None:
    engine = start("--disable-flashinfer-autotune", ROLLPIN_LAB_SGLANG_VERSION="0.5.17")
    engine.wait()
    assert "autotune with cache" not in engine.log()
    assert list(tmp_path.glob(".cache/flashinfer/*/120f/cached_ops/*/*.so"))
    assert not (tmp_path / ".cache" / "sglang").exists()


def test_unwritable_cache_kills_the_tree(start: Start, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    engine = start(SGLANG_CACHE_DIR=str(blocked))
    assert engine.exit_code() == -signal.SIGKILL
    assert "NotADirectoryError" in engine.log()


# --- faults -------------------------------------------------------------------------------------


def test_crash_load(start: Start) -> None:
    engine = start(ROLLPIN_LAB_FAULT="crash-load")
    assert engine.exit_code() == -signal.SIGKILL
    assert "Scheduler hit an exception: Traceback" in engine.log()
    assert "Uvicorn" not in engine.log()


def test_hang(start: Start) -> None:
    engine = start(
        ROLLPIN_LAB_FAULT="hang",
        SGLANG_HEALTH_CHECK_TIMEOUT="0.3",
        ROLLPIN_LAB_SGLANG_VERSION="0.5.23",
    )
    engine.wait()
    deadline = time.monotonic() + PATIENCE
    while engine.ask("/health")[0] == 200 and time.monotonic() < deadline:
        pass
    assert engine.ask("/health")[0] == 503
    assert engine.ask("/ready")[0] == 503
    assert engine.ask("/v1/models")[0] == 200
    with pytest.raises(TimeoutError):
        engine.ask("/server_info", timeout=0.3)
    engine.process.send_signal(signal.SIGTERM)
    assert engine.exit_code() == 0


def test_freeze(start: Start) -> None:
    engine = start(ROLLPIN_LAB_FAULT="freeze")
    engine.wait()
    deadline = time.monotonic() + PATIENCE

    def ask_on() -> None:
        while time.monotonic() < deadline:
            engine.ask("/v1/models", timeout=0.3)

    with pytest.raises(TimeoutError):
        ask_on()


@pytest.mark.parametrize("fault", ["lie", "lie:garbage"])
def test_lie(start: Start, fault: str) -> None:
    engine = start(ROLLPIN_LAB_FAULT=fault)
    engine.wait()
    assert engine.ask("/health")[0] == 200
    status, text = engine.chat(QUESTION, max_tokens=64)
    choice = json.loads(text)["choices"][0]
    assert (status, choice["message"]["content"]) == (200, "!" * 64)
    assert choice["finish_reason"] == "length"


def test_lie_500(start: Start) -> None:
    engine = start(ROLLPIN_LAB_FAULT="lie:500")
    engine.wait()
    assert engine.ask("/health")[0] == 200
    assert engine.chat(QUESTION)[0] == 500


def test_ignore_sigterm(start: Start) -> None:
    engine = start(ROLLPIN_LAB_FAULT="ignore-sigterm")
    engine.wait()
    engine.process.send_signal(signal.SIGTERM)
    assert engine.ask("/health")[0] == 200
    assert "SIGTERM received" not in engine.log()


def test_no_cache(start: Start, tmp_path: Path) -> None:
    start(ROLLPIN_LAB_FAULT="no-cache").wait()
    assert not list(tmp_path.iterdir())


def test_wrong_model(start: Start, model: Path) -> None:
    engine = start(ROLLPIN_LAB_FAULT="wrong-model")
    engine.wait()
    assert engine.json("/model_info")["model_path"] != str(model)
    assert engine.json("/server_info")["model_path"] != str(model)


def test_unknown_fault_is_an_error(start: Start) -> None:
    engine = start(ROLLPIN_LAB_FAULT="crash-laod")
    assert engine.exit_code() == 1
    assert "no fault 'crash-laod'" in engine.lines[-1]


# --- GPUs ---------------------------------------------------------------------------------------


def test_gpus_hold_one_model_at_a_time(start: Start) -> None:
    names = ",".join(f"test-{os.getpid()}-{n}" for n in range(8))
    first = start(NVIDIA_VISIBLE_DEVICES=names)
    first.wait()
    second = start(NVIDIA_VISIBLE_DEVICES=names)
    assert second.exit_code() == -signal.SIGKILL
    assert "CUDA out of memory" in second.log()
    first.end()
    start(NVIDIA_VISIBLE_DEVICES=names).wait()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"ROLLPIN_LAB_NEEDS_GPUS": "1"}, "No CUDA GPUs are available"),
        ({"NVIDIA_VISIBLE_DEVICES": "0,1"}, "invalid device ordinal"),
    ],
)
def test_too_few_gpus(start: Start, env: dict[str, str], words: str) -> None:
    engine = start(**env)
    assert engine.exit_code() == -signal.SIGKILL
    assert words in engine.log()
