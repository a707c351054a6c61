"""SGLang, from 0.5.14 on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rollpin import engine_flags
from rollpin.plan import Target

# Flags whose resolved value /server_info tells under the same name. A flag that the engine lets
# "auto" choose is not asked about; a field that a version lacks is no contradiction.
_COMPARED = {
    "--tp-size": "tp_size",
    "--pp-size": "pp_size",
    "--mem-fraction-static": "mem_fraction_static",
    "--max-running-requests": "max_running_requests",
    "--chunked-prefill-size": "chunked_prefill_size",
    "--moe-runner-backend": "moe_runner_backend",
    "--json-model-override-args": "json_model_override_args",
    "--disable-radix-cache": "disable_radix_cache",
    "--disable-flashinfer-autotune": "disable_flashinfer_autotune",
    "--disable-custom-all-reduce": "disable_custom_all_reduce",
    "--quantization": "quantization",
    "--kv-cache-dtype": "kv_cache_dtype",
    "--tool-call-parser": "tool_call_parser",
    "--reasoning-parser": "reasoning_parser",
    "--port": "port",
}


class SGLang:
    """/health runs a generation of its own and takes a second; /model_info is static."""

    ready_path = "/health"
    ready_timeout = 30.0  # SGLANG_HEALTH_CHECK_TIMEOUT is 20 s
    ready_marker = "The server is fired up and ready to roll!"
    identity_paths: Sequence[str] = ("/model_info", "/server_info")
    optional_paths: Sequence[str] = ()

    def identity(self, path: str, answer: Any, target: Target) -> list[str]:
        if not isinstance(answer, dict):
            return [f"{path} answered no JSON object"]
        out = []
        served = answer.get("model_path")
        if target.model_path and served is not None and served != target.model_path:
            out.append(f"{path} says model {served}, planned is {target.model_path}")
        if path == "/server_info":
            out += self._flags(answer, target)
        return out

    def _flags(self, answer: dict[str, Any], target: Target) -> list[str]:
        asked = {engine_flags.canonical(k): v for k, v in target.flags.items()}
        out = []
        for flag, name in _COMPARED.items():
            if name not in answer:
                continue
            if flag not in asked:
                continue  # what the engine chose by itself is no contradiction
            wanted = asked[flag][0] if asked[flag] else "true"
            if wanted != "auto" and not _equal(wanted, answer[name]):
                out.append(f"{name} is {answer[name]!r}, asked for was {wanted!r}")
        return out

    def model_name(self, target: Target) -> str:
        served = target.flags.get("--served-model-name") or ()
        return served[0] if served else target.model_path


def _equal(wanted: str, got: Any) -> bool:
    if isinstance(got, bool):
        return wanted.lower() == str(got).lower()
    if isinstance(got, (int, float)):
        try:
            return float(wanted) == float(got)
        except ValueError:
            return False
    if wanted == str(got):
        return True
    try:
        return bool(json.loads(wanted) == (json.loads(got) if isinstance(got, str) else got))
    except ValueError:
        return False
