"""The model on every lab host: the shape of GLM-5.3-NVFP4, a few KB of it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

NAME = "GLM-5.3-NVFP4"
LAYERS = 8
SHARDS = 4

CONFIG = {
    "architectures": ["GlmMoeDsaForCausalLM"],
    "model_type": "glm_moe_dsa",
    "dtype": "bfloat16",
    "hidden_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "index_topk": 2048,
    "max_position_embeddings": 202752,
    "vocab_size": 154880,
    "eos_token_id": [154820, 154827, 154829],
    "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16},
}
TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "model_max_length": 202752,
    "eos_token": "<|endoftext|>",
    "padding_side": "left",
}


def shard(names: list[str]) -> bytes:
    """A valid safetensors file: header length, header, and 1 KB of zeros per tensor."""
    header = {
        name: {"dtype": "U8", "shape": [1024], "data_offsets": [1024 * at, 1024 * (at + 1)]}
        for at, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(1024 * len(names))


def write(models: Path) -> None:
    """Put the model below `models`, as /data/hf_models has it."""
    folder = models / NAME
    folder.mkdir(parents=True, exist_ok=True)
    tensors = [f"model.layers.{layer}.mlp.gate.weight" for layer in range(LAYERS)]
    per_shard = len(tensors) // SHARDS
    weight_map: dict[str, str] = {}
    for number in range(SHARDS):
        name = f"model-{number + 1:05d}-of-{SHARDS:05d}.safetensors"
        held = tensors[number * per_shard : (number + 1) * per_shard]
        (folder / name).write_bytes(shard(held))
        weight_map |= dict.fromkeys(held, name)
    index = {"metadata": {"total_size": 1024 * len(tensors)}, "weight_map": weight_map}
    for name, content in (
        ("config.json", CONFIG),
        ("model.safetensors.index.json", index),
        ("tokenizer_config.json", TOKENIZER),
        ("generation_config.json", {"eos_token_id": CONFIG["eos_token_id"], "temperature": 1.0}),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
