"""The slow part of a start, in the scheduler: weights, memory, kernels, tactics, graphs.

Logs the markers of facts/serving.md in their order, one line per rank where the real one has one.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any

from . import caches, child, gpus, log, weights
from .args import ServerArgs, rank_prefix, ranks
from .knobs import Knobs

# What the reference report measured on 8 GPUs of 84 GB: the pool is the same with tactics on.
POOL_TOKENS = 1_040_384
TOTAL_GB = 83.64
LEFT_GB = 15.64
TACTICS_GB = 3.85


@dataclass
class Loaded:
    """What the scheduler knows when it is ready; goes into /server_info."""

    max_total_num_tokens: int
    seconds: dict[str, Any] = field(default_factory=dict)


class Startup:
    def __init__(self, args: ServerArgs, knobs: Knobs, context: int, architecture: str) -> None:
        self.args = args
        self.knobs = knobs
        self.context = context
        self.architecture = architecture
        self.places = caches.places(args, knobs.version, knobs.flashinfer, os.environ)
        self.prefixes = [rank_prefix(args, pp, tp) for pp, tp in ranks(args)]
        self.leaders = [rank_prefix(args, pp, 0) for pp in range(args["pp_size"])]

    def run(self) -> Loaded:
        """Raises what the step raised; the caller turns it into the death of the engine."""
        begun = time.monotonic()
        self._say("Init parallel begin.")
        self._say("Init parallel ends. elapsed=0.01 s")
        load_weight = self._weights()
        pool = self._memory_pool()
        if "no-cache" not in self.knobs.faults:
            self._kernels()
        else:
            time.sleep(self.knobs.cold / 2)
        left = LEFT_GB
        if self._autotunes():
            self._tactics()
            left -= TACTICS_GB
        graph = self._graphs()
        tokens = self.args["max_total_tokens"] or POOL_TOKENS
        for prefix in self.leaders:
            log.line(
                f"max_total_num_tokens={tokens}, "
                f"chunked_prefill_size={self.args['chunked_prefill_size']}, "
                f"max_prefill_tokens={self.args['max_prefill_tokens']}, "
                f"max_running_requests={self.args['max_running_requests']}, "
                f"context_len={self.context}, available_gpu_mem={left:.2f} GB",
                prefix,
            )
        return Loaded(
            tokens,
            {
                "load_weight": load_weight,
                "kv_cache_allocation": pool,
                "cuda_graph": graph,
                "scheduler_e2e": time.monotonic() - begun,
            },
        )

    def _say(self, message: str) -> None:
        for prefix in self.prefixes:
            log.line(message, prefix)

    def _weights(self) -> float:
        begun = time.monotonic()
        fraction = self.args["mem_fraction_static"]
        self.memory = gpus.take(gpus.visible(), len(self.prefixes), fraction)
        child.show_context("sglang::scheduler")
        self._say(f"Load weight begin. avail mem={TOTAL_GB:.2f} GB")
        time.sleep(self.knobs.load * 0.4 + (self.knobs.faults.seconds("slow") or 0.0))
        weights.load(self.args["model_path"])
        if "crash-load" in self.knobs.faults:
            raise RuntimeError(
                "The size of tensor a (3072) must match the size of tensor b (6144) at "
                "non-singleton dimension 1"
            )
        elapsed = time.monotonic() - begun
        self._say(
            f"Load weight end. elapsed={elapsed:.2f} s, type={self.architecture}, "
            "avail mem=31.20 GB, mem usage=52.44 GB."
        )
        return elapsed

    def _memory_pool(self) -> float:
        begun = time.monotonic()
        time.sleep(self.knobs.load * 0.1)
        tokens = self.args["max_total_tokens"] or POOL_TOKENS
        self._say(f"KV Cache is allocated. #tokens: {tokens}, KV size: 14.20 GB")
        self._say("Memory pool end. avail mem=16.41 GB")
        return time.monotonic() - begun

    def _kernels(self) -> None:
        if self.places.stale:
            log.line(
                "Compiled-kernel caches now live under SGLANG_CACHE_DIR; found old ones in "
                + ", ".join(map(str, self.places.stale)),
                self.prefixes[0],
            )
        if caches.kernels_present(self.places):
            log.line(f"Loaded JIT kernels from {self.places.ops}", self.prefixes[0])
        else:
            log.line("Loading JIT ops: compiling", self.prefixes[0])
            time.sleep(self.knobs.cold / 2)
            caches.compile_kernels(self.places)
        caches.map_kernels(self.places)

    def _autotunes(self) -> bool:
        return not self.args["disable_flashinfer_autotune"]

    def _tactics(self) -> None:
        switch = os.environ.get("SGLANG_FLASHINFER_AUTOTUNE_CACHE", "1").lower()
        keeps = switch not in ("0", "false") and "no-cache" not in self.knobs.faults
        present = caches.tactics_present(self.places, self.args) if keeps else False
        where = self.places.tactics if keeps else None
        self._say(f"Running FlashInfer autotune with cache: {where}")
        if present is None:
            self._say("FlashInfer autotune: per-rank caches disagree, discarding them")
        if present:
            count = len(caches.OPS)
            for prefix, path in zip(
                self.prefixes, caches.tactic_files(self.places, self.args), strict=True
            ):
                log.line(f"[Autotuner]: Loaded {count} configs from {path}", prefix)
        else:
            time.sleep(self.knobs.cold / 2)
            if keeps:
                self._keep_tactics()
        self._say("FlashInfer autotune completed.")

    def _keep_tactics(self) -> None:
        try:
            caches.draw_tactics(self.places, self.args)
        except OSError as error:
            self._say(f"Failed to save FlashInfer autotune cache: {error}")

    def _graphs(self) -> dict[str, float]:
        begun = time.monotonic()
        time.sleep(self.knobs.load * 0.25)
        if not self.args["disable_cuda_graph"]:
            sizes = [1, 2, 4, 8, 12, 16, 24, 32, 40, 48]
            self._say("Capture decode CUDA graph begin. This can take up to several minutes.")
            elapsed = time.monotonic() - begun
            self._say(f"Capture decode CUDA graph end. bs={sizes} elapsed={elapsed:.2f} s.")
        return {"prefill": 0.0, "decode": time.monotonic() - begun}
