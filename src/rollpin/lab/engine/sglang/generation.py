"""Requests that generate, and the shape of their answers: /generate and the OpenAI routes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import model
from .server import Server

Body = dict[str, Any]
KINDS = ("/generate", "/v1/completions", "/v1/chat/completions")


class BadRequest(Exception):
    """The request is wrong; the message goes into a 400."""


@dataclass
class Generation:
    """One request under way: iterate it for the text, piece by piece."""

    kind: str
    rid: str
    model: str
    created: float
    prompt_tokens: int
    stream: bool
    include_usage: bool
    pieces: Iterator[Body]
    tokens: int = 0
    finish: str = ""

    def __iter__(self) -> Iterator[str]:
        for message in self.pieces:
            if message.get("token") is not None:
                self.tokens += 1
                yield message["token"]
            self.finish = message.get("finish") or ""


def begin(server: Server, kind: str, body: Body) -> Generation:
    """Check a request and hand it to the scheduler. Raises BadRequest."""
    chat = kind == KINDS[2]
    prompt = _prompt(kind, body)
    sampling = body.get("sampling_params") or {} if kind == KINDS[0] else body
    default = 1024 if chat else 128 if kind == KINDS[0] else 16
    limit = sampling.get("max_new_tokens")
    if kind != KINDS[0]:
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
    limit = default if limit is None else int(limit)
    words = model.count_tokens(prompt)
    if words + limit > server.context:
        raise BadRequest(
            "Requested token count exceeds the model's maximum context length of "
            f"{server.context} tokens. You requested a total of {words + limit} tokens: {words} "
            f"tokens from the input messages and {limit} tokens for the completion. Please reduce "
            "the number of tokens in the input messages or the completion to fit within the limit."
        )
    ignore = bool(sampling.get("ignore_eos"))
    request = server.generate(prompt, limit, chat=chat, ignore_eos=ignore)
    return Generation(
        kind=kind,
        rid=request.rid,
        model=str(body.get("model") or server.args["served_model_name"]),
        created=time.time(),
        prompt_tokens=words,
        stream=bool(body.get("stream")),
        include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        pieces=server.pipeline.answers(request),
    )


def _prompt(kind: str, body: Body) -> str:
    if kind == KINDS[2]:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadRequest("messages: Field required")
        said = [m.get("content") for m in messages if m.get("role") == "user"]
        content = said[-1] if said else ""
        if isinstance(content, list):
            content = " ".join(str(part.get("text", "")) for part in content)
        return str(content or "")
    prompt = body.get("text" if kind == KINDS[0] else "prompt")
    if not isinstance(prompt, str):
        raise BadRequest("prompt: Input should be a valid string")
    return prompt


def whole(generation: Generation) -> Body:
    """The answer of a request that does not stream."""
    text = "".join(generation)
    if generation.kind == KINDS[0]:
        return _generated(generation, text)
    choice: Body = {"index": 0}
    chat = generation.kind == KINDS[2]
    if chat:
        choice["message"] = {
            "role": "assistant",
            "content": text,
            "reasoning_content": None,
            "tool_calls": None,
        }
    else:
        choice["text"] = text
    choice |= {"logprobs": None} | _ending(generation)
    return {
        "id": generation.rid,
        "object": "chat.completion" if chat else "text_completion",
        "created": int(generation.created),
        "model": generation.model,
        "choices": [choice],
        "usage": _usage(generation),
        "metadata": {"weight_version": "default"},
    }


def chunks(generation: Generation) -> Iterator[Body]:
    """The events of a request that streams, without the closing [DONE]."""
    text = ""
    if generation.kind == KINDS[2]:
        yield _chunk(generation, {"role": "assistant", "content": ""})
    for piece in generation:
        text += piece
        if generation.kind == KINDS[0]:
            yield _generated(generation, text)
        elif generation.kind == KINDS[2]:
            yield _chunk(generation, {"role": None, "content": piece})
        else:
            yield _chunk(generation, piece)
    if generation.kind == KINDS[0]:
        yield _generated(generation, text)
        return
    last = {"role": None, "content": None} if generation.kind == KINDS[2] else ""
    yield _chunk(generation, last)
    if generation.include_usage:
        yield _chunk(generation, None) | {"usage": _usage(generation)}


def _chunk(generation: Generation, piece: Body | str | None) -> Body:
    chat = generation.kind == KINDS[2]
    choice: Body = {"index": 0}
    if isinstance(piece, dict):
        choice["delta"] = piece | {"reasoning_content": None, "tool_calls": None}
    else:
        choice["text"] = piece
    choice |= {"logprobs": None} | _ending(generation)
    return {
        "id": generation.rid,
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": int(generation.created),
        "model": generation.model,
        "choices": [] if piece is None else [choice],
        "usage": None,
    }


def _ending(generation: Generation) -> Body:
    stopped = generation.finish == "stop"
    return {
        "finish_reason": generation.finish or None,
        "matched_stop": model.EOS if stopped else None,
    }


def _usage(generation: Generation) -> Body:
    return {
        "prompt_tokens": generation.prompt_tokens,
        "total_tokens": generation.prompt_tokens + generation.tokens,
        "completion_tokens": generation.tokens,
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
    }


def _generated(generation: Generation, text: str) -> Body:
    finish: Body | None = None
    if generation.finish == "stop":
        finish = {"type": "stop", "matched": model.EOS}
    elif generation.finish:
        finish = {"type": "length", "length": generation.tokens}
    meta = {
        "id": generation.rid,
        "finish_reason": finish,
        "prompt_tokens": generation.prompt_tokens,
        "weight_version": "default",
        "completion_tokens": generation.tokens,
        "cached_tokens": 0,
        "e2e_latency": time.time() - generation.created,
    }
    return {"text": text, "output_ids": [60] * generation.tokens, "meta_info": meta}
