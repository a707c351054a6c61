"""What rollpin asks of an engine. Facts: facts/serving.md, facts/real-engines.md."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Protocol

from rollpin.plan import Target


class Engine(Protocol):
    """Paths and readings of one engine."""

    ready_path: str
    ready_timeout: float  # seconds; above the engine's own limit for a health generation
    ready_marker: str  # the log line that says so
    identity_paths: Sequence[str]  # asked in turn
    optional_paths: Sequence[str]  # older versions answer 404 there

    def identity(self, path: str, answer: Any, target: Target) -> list[str]:
        """What in this answer contradicts the plan; empty when it agrees."""
        ...

    def model_name(self, target: Target) -> str:
        """The name to ask completions of."""
        ...


BAD_LINES = (
    "Received sigquit from a child process",
    "Scheduler hit an exception",
    "Initialization failed. warmup error",
    "scheduler died during initialization",
    "Engine core initialization failed",
)


def chat_request(model: str, prompt: str) -> dict[str, Any]:
    """One short, deterministic, streamed chat completion."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": 256,
        "stream": True,
    }


def read_stream(body: str) -> tuple[str, str | None, bool]:
    """(text, finish reason, whether the stream was ended properly) of a streamed completion."""
    text, finish, done = "", None, False
    for line in body.splitlines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            done = True
            continue
        try:
            event = json.loads(data)
            choice = event["choices"][0]
        except (ValueError, KeyError, IndexError, TypeError):
            continue
        delta = choice.get("delta") or {}
        text += delta.get("content") or delta.get("reasoning_content") or ""
        finish = choice.get("finish_reason") or finish
    return text, finish, done


def judge_generation(status: int, body: str, expect: str) -> str | None:
    """Why this streamed answer is not a good one; None when it is."""
    if status != 200:
        return f"status {status}: {body.strip()[:160]}"
    text, finish, done = read_stream(body)
    if not text.strip():
        return "an empty answer"
    if finish is None or not done:
        return f"the stream broke off after {text[-40:]!r}"
    if expect and not re.search(rf"(?<!\w){re.escape(expect)}(?!\w)", text):
        return f"answered {text.strip()[:80]!r}, not {expect!r}"
    return None
