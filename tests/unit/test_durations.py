"""Durations as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollpin import durations

ROOT = Path(__file__).parents[2]
PRO6000 = ROOT / "profiles" / "pro6000"
DELIVERED = PRO6000 / "glm53_nvfp4_pro6000_sglang_tp2pp4_latest_autotune.env"
NIGHTLY = PRO6000 / "glm53_nvfp4_pro6000_sglang_tp2pp4_nightly.env"
DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64


@pytest.mark.parametrize(
    ("text", "seconds", "spoken"),
    [
        ("45m", 2700, "45 min"),
        ("90s", 90, "1 min 30 s"),
        ("2h", 7200, "2 h"),
        ("1h30m", 5400, "1 h 30 min"),
        ("0.5s", 0.5, "0.5 s"),
        ("0s", 0, "0 s"),
    ],
)
def test_durations(text: str, seconds: float, spoken: str) -> None:
    assert durations.seconds(text) == seconds
    assert durations.spoken(seconds) == spoken


@pytest.mark.parametrize("text", ["", "45", "m", "-1s", "1d", "45 min", "1s1s", "1e3s", "١s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; write"):
        durations.seconds(text)
