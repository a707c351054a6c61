"""The command line and what it resolves to.

`server_args.json` holds the 546 arguments of a real 0.5.23 with their defaults, as recorded.
The flags follow from them: a recipe with any real flag runs, and one with a typing error exits 2.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
from typing import Any

ServerArgs = dict[str, Any]

ALIASES = {
    "model_path": ["--model"],
    "tp_size": ["--tensor-parallel-size", "--tp"],
    "pp_size": ["--pipeline-parallel-size", "--pp"],
    "dp_size": ["--data-parallel-size", "--dp"],
    "ep_size": ["--expert-parallel-size", "--ep"],
}
# Arguments that default to None and take a number.
NUMBERS: dict[str, type] = {
    "mem_fraction_static": float,
    "max_running_requests": int,
    "max_queued_requests": int,
    "max_total_tokens": int,
    "chunked_prefill_size": int,
    "context_length": int,
    "random_seed": int,
    "nccl_port": int,
    "numa_node": int,
    "pp_max_micro_batch_size": int,
    "speculative_num_steps": int,
    "speculative_eagle_topk": int,
    "speculative_num_draft_tokens": int,
    "cuda_graph_max_bs_decode": int,
    "cuda_graph_max_bs_prefill": int,
}
CHOICES = {
    "moe_runner_backend": [
        "auto", "deep_gemm", "triton", "triton_kernel", "flashinfer_trtllm",
        "flashinfer_trtllm_routed", "flashinfer_cutlass", "flashinfer_mxfp4",
        "flashinfer_cutedsl", "cutlass",
    ],
    "load_format": ["auto", "safetensors", "pt", "dummy", "gguf", "fastsafetensors"],
    "kv_cache_dtype": ["auto", "fp8_e5m2", "fp8_e4m3", "bf16", "bfloat16", "fp4_e2m1"],
}  # fmt: skip


def parse(argv: list[str]) -> ServerArgs:
    """What was asked for, over the defaults. Exits 2 with a usage message as SGLang does."""
    defaults = json.loads(pathlib.Path(__file__).with_name("server_args.json").read_text())
    parser = argparse.ArgumentParser(prog="sglang serve", allow_abbrev=False)
    for name, default in defaults.items():
        _add_flag(parser, name, default)
    return vars(parser.parse_args(argv))


def _add_flag(parser: argparse.ArgumentParser, name: str, default: object) -> None:
    flags = ["--" + name.replace("_", "-"), *ALIASES.get(name, [])]
    required = name == "model_path"
    if isinstance(default, bool):
        parser.add_argument(*flags, dest=name, default=default, action="store_true")
    elif isinstance(default, list):
        parser.add_argument(*flags, dest=name, default=default, nargs="*")
    elif isinstance(default, dict):
        parser.add_argument(*flags, dest=name, default=default, type=json.loads)
    else:
        kind = NUMBERS.get(name) or (str if default is None else type(default))
        choices = CHOICES.get(name)
        parser.add_argument(
            *flags, dest=name, default=default, type=kind, choices=choices, required=required
        )


def resolve(asked: ServerArgs, config: dict[str, Any]) -> ServerArgs:
    """What the server runs with: the automatic choices made, from the model's config too."""
    args = dict(asked)
    args["tokenizer_path"] = args["tokenizer_path"] or args["model_path"]
    args["served_model_name"] = args["served_model_name"] or args["model_path"]
    if args["random_seed"] is None:
        args["random_seed"] = random.randint(0, 1 << 30)  # noqa: S311
    chosen = {
        "mem_fraction_static": 0.85,
        "chunked_prefill_size": 8192,
        "attention_backend": "flashinfer",
        "sampling_backend": "flashinfer",
        "grammar_backend": "xgrammar",
        "quantization": _quantization(config),
    }
    for name, value in chosen.items():
        if args[name] is None:
            args[name] = value
    return args


def _quantization(config: dict[str, Any]) -> str | None:
    quantization = config.get("quantization_config") or {}
    method = quantization.get("quant_method")
    if method == "modelopt":
        return "modelopt_fp4" if "FP4" in str(quantization.get("quant_algo")) else "modelopt_fp8"
    return str(method) if method else None


def ranks(args: ServerArgs) -> list[tuple[int, int]]:
    """(pp, tp) of every rank, in the order of the GPUs."""
    return [(pp, tp) for pp in range(args["pp_size"]) for tp in range(args["tp_size"])]


def rank_prefix(args: ServerArgs, pp: int, tp: int) -> str:
    """What a rank puts behind the time stamp of its log lines."""
    text = f" PP{pp}" if args["pp_size"] > 1 else ""
    return text + (f" TP{tp}" if args["tp_size"] > 1 else "")
