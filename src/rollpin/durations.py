"""Durations as people write them in profiles and inventories: `45m`, `90s`, `2h`, `1h30m`."""

from __future__ import annotations

import re

_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_WRITTEN = re.compile(r"(?:[0-9]{1,7}(?:\.[0-9]{1,3})?[hms])+")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([hms])")


def seconds(text: str) -> float:
    """Seconds that `text` means. A unit is required. Raises ValueError with what to write."""
    if not _WRITTEN.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write a number with a unit: 90s, 45m, 1h30m")
    parts = _PART.findall(text)
    units = [unit for _, unit in parts]
    if sorted(set(units), key="hms".index) != units:
        raise ValueError(f"{text!r} is not a duration; write each unit once, the largest first")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def spoken(duration: float) -> str:
    """How messages say it: `45 min`, `1 h 30 min`, `2 s`, `0.5 s`."""
    hours, rest = divmod(duration, 3600)
    minutes, left = divmod(rest, 60)
    words = [f"{hours:.0f} h"] if hours else []
    words += [f"{minutes:.0f} min"] if minutes else []
    words += [f"{left:g} s"] if left or not words else []
    return " ".join(words)
