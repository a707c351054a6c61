"""What each engine answers, and how that is read. Pure: responses in, findings out."""

from __future__ import annotations

from rollpin.engines.base import Engine
from rollpin.engines.sglang import SGLang
from rollpin.engines.vllm import VLLM

ENGINES: dict[str, Engine] = {"sglang": SGLang(), "vllm": VLLM()}
