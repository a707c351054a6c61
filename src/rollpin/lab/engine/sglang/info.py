"""What the server says of itself: /model_info, /server_info, /v1/models, /v1/loads, /metrics."""

from __future__ import annotations

import time
from typing import Any

from . import weights
from .server import Server

Body = dict[str, Any]


def model_info(server: Server) -> Body:
    args = server.args
    return {
        "model_path": _model_path(server),
        "served_model_name": args["served_model_name"],
        "tokenizer_path": args["tokenizer_path"],
        "is_generation": True,
        "preferred_sampling_params": args["preferred_sampling_params"],
        "weight_version": args["weight_version"],
        "load_format": args["load_format"],
        "reasoning_parser": args["reasoning_parser"],
        "tool_call_parser": args["tool_call_parser"],
        "disaggregation_mode": args["disaggregation_mode"],
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": server.config.get("model_type"),
        "architectures": weights.architectures(server.config),
    }


def server_info(server: Server) -> Body:
    """Asks the scheduler first. The keys are the real ones; api_key is in clear, as there."""
    asked = server.ask_scheduler()
    args = {**server.args, "model_path": _model_path(server)}
    body = dict(args)
    version = server.knobs.version
    if version >= (0, 5, 23):
        body["launch_command"] = server.command_line
    tokens = server.loaded["max_total_num_tokens"]
    body["status"] = "ready"
    body["max_total_num_tokens"] = tokens
    body["max_req_input_len"] = min(server.context, tokens) - 6
    if version >= (0, 5, 17):
        body["startup_time"] = server.loaded["seconds"]
    body["kv_events"] = None
    body["internal_states"] = [
        {
            **args,
            "effective_max_running_requests_per_dp": args["max_running_requests"],
            "last_gen_throughput": 0.0,
            "memory_usage": _memory(tokens),
            "num_running_reqs": asked["running"],
        }
    ]
    body["version"] = server.knobs.version_text
    body["frontend"] = "python"
    return body


def _model_path(server: Server) -> str:
    wrong = "wrong-model" in server.knobs.faults
    return "/data/hf_models/another-model" if wrong else server.args["model_path"]


def _memory(tokens: int) -> Body:
    return {
        "weight": 52.44,
        "kvcache": 14.2,
        "startup_available": 83.64,
        "token_capacity": tokens,
        "token_capacity_swa": None,
        "graph": {"prefill": 0.0, "decode": 0.77},
    }


def model_card(server: Server) -> Body:
    name = server.args["served_model_name"]
    return {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": name,
        "parent": None,
        "max_model_len": server.context,
    }


def models(server: Server) -> Body:
    return {"object": "list", "data": [model_card(server)]}


def no_model(name: str) -> Body:
    error = {
        "message": f"The model '{name}' does not exist",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    return {"error": error}


def loads(server: Server) -> Body:
    asked = server.ask_scheduler()
    tokens = server.loaded["max_total_num_tokens"]
    load = {
        "timestamp": time.time(),
        "dp_rank": 0,
        "num_running_reqs": asked["running"],
        "num_waiting_reqs": asked["queued"],
        "max_total_num_tokens": tokens,
        "max_running_requests": server.args["max_running_requests"],
        "token_usage": 0.0,
        "gen_throughput": 0.0,
    }
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    return {"timestamp": stamp, "version": server.knobs.version_text, "loads": [load]}


def metrics(server: Server) -> str:
    """The gauges that rollpin reads; nothing is asked of the scheduler."""
    name = server.args["served_model_name"]
    labels = f'engine_type="unified",model_name="{name}",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    running = max(0, server.running)
    gauges = {
        "num_running_reqs": running,
        "num_queue_reqs": 0,
        "token_usage": 0.0,
        "gen_throughput": 0.0,
        "max_total_num_tokens": server.loaded["max_total_num_tokens"],
    }
    lines = []
    for gauge, value in gauges.items():
        lines.append(f"# TYPE sglang:{gauge} gauge")
        lines.append(f"sglang:{gauge}{{{labels}}} {float(value)}")
    lines.append("# TYPE sglang:startup_time_seconds gauge")
    for phase, value in server.loaded["seconds"].items():
        if not isinstance(value, dict):
            phase_labels = f'engine_type="unified",model_name="{name}",phase="{phase}"'
            lines.append(f"sglang:startup_time_seconds{{{phase_labels}}} {value}")
    return "\n".join(lines) + "\n"
