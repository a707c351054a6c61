"""The model folder, looked at as SGLang looks at it: config first, weights by the scheduler."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any


def read_config(model_path: str, overrides: str) -> dict[str, Any]:
    """config.json with `--json-model-override-args` over it.

    Raises OSError or ValueError: the server ends with exit code 1 before it starts anything.
    """
    folder = pathlib.Path(model_path)
    if not folder.is_dir():
        raise OSError(
            f"Can't load the configuration of '{model_path}'. If you were trying to load it from "
            "'https://huggingface.co/models', make sure you don't have a local directory with the "
            f"same name. Otherwise, make sure '{model_path}' is the correct path to a directory "
            "containing a config.json file"
        )
    try:
        config = json.loads((folder / "config.json").read_text())
    except ValueError as error:
        where = folder / "config.json"
        raise OSError(
            f"It looks like the config file at '{where}' is not a valid JSON file."
        ) from error
    if not isinstance(config, dict) or not {"architectures", "model_type"} & config.keys():
        raise ValueError(
            f"Unrecognized model in {model_path}. Should have a `model_type` key in its config.json"
        )
    config.update(json.loads(overrides))
    return config


def architectures(config: dict[str, Any]) -> list[str]:
    return list(config.get("architectures") or ["LlamaForCausalLM"])


def context_length(config: dict[str, Any]) -> int:
    return int(config.get("max_position_embeddings") or 65536)


def load(model_path: str) -> int:
    """Look at every shard; returns how many there are. Raises RuntimeError or ValueError."""
    folder = pathlib.Path(model_path)
    index = folder / "model.safetensors.index.json"
    shards = sorted(folder.glob("*.safetensors"))
    if index.is_file():
        named = set(json.loads(index.read_text())["weight_map"].values())
        missing = sorted(named - {shard.name for shard in shards})
        if missing:
            raise RuntimeError(f"Missing {len(missing)} weight shards in {folder}: {missing[0]}")
    if not shards:
        raise RuntimeError(f"Cannot find any model weights with `{model_path}`")
    for shard in shards:
        _read_header(shard)
    return len(shards)


def _read_header(shard: pathlib.Path) -> None:
    """The header of a safetensors file: 8 bytes of length, then JSON that names every tensor."""
    size = os.path.getsize(shard)
    with shard.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise ValueError(f"Error while deserializing header: header too large ({shard})")
        header = json.loads(file.read(length) or b"null")
    if not isinstance(header, dict):
        raise ValueError(f"Error while deserializing header: invalid header ({shard})")
    ends = [t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"]
    if size < 8 + length + max(ends, default=0):
        raise ValueError(f"Error while deserializing header: incomplete metadata ({shard})")
