"""vLLM, from 0.32 on: no /server_info, and /health is a flag check that a hung engine passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rollpin.plan import Target


class VLLM:
    ready_path = "/health"
    ready_timeout = 10.0
    ready_marker = "Application startup complete."
    identity_paths: Sequence[str] = ("/v1/models",)
    optional_paths: Sequence[str] = ()

    def identity(self, path: str, answer: Any, target: Target) -> list[str]:
        models = answer.get("data") if isinstance(answer, dict) else None
        if not models:
            return [f"{path} names no model"]
        roots = [m.get("root") for m in models if isinstance(m, dict)]
        if target.model_path and target.model_path not in roots:
            return [f"{path} says model {roots}, planned is {target.model_path}"]
        return []

    def model_name(self, target: Target) -> str:
        served = target.flags.get("--served-model-name") or ()
        return served[0] if served else target.model_path
