"""The little model: right about small arithmetic, a few capitals and counting; else it repeats.

Greedy and deterministic. A token is a word with the blank before it, as most are.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

EOS = 154820  # what `matched_stop` says when the model ended by itself

CAPITALS = {
    "france": "Paris",
    "germany": "Berlin",
    "japan": "Tokyo",
    "china": "Beijing",
    "italy": "Rome",
    "spain": "Madrid",
}
OPERATIONS = {
    "times": lambda a, b: a * b,
    "plus": lambda a, b: a + b,
    "minus": lambda a, b: a - b,
}
SPELLINGS = {"*": "times", "x": "times", "×": "times", "multiplied by": "times", "+": "plus"}
SPELLINGS |= {"-": "minus"}
SUM = re.compile(
    r"(?<![\w.])(-?\d{1,12})\s*(times|multiplied by|plus|minus|[*x×+-])\s*(-?\d{1,12})(?![\w.])",
    re.IGNORECASE,
)
CAPITAL = re.compile(r"capital (?:city )?of (\w+)", re.IGNORECASE)
COUNT = re.compile(r"count (?:from )?(\d{1,4}) (?:up )?to (\d{1,4})", re.IGNORECASE)
GARBAGE = "!"


def knows(prompt: str) -> str | None:
    """The answer to a question the model knows, or None."""
    if found := SUM.search(prompt):
        word = found[2].lower()
        return str(OPERATIONS[SPELLINGS.get(word, word)](int(found[1]), int(found[3])))
    if (found := CAPITAL.search(prompt)) and found[1].lower() in CAPITALS:
        return CAPITALS[found[1].lower()]
    if found := COUNT.search(prompt):
        return ", ".join(map(str, range(int(found[1]), int(found[2]) + 1)))
    return None


def count_tokens(text: str) -> int:
    return len(text.split())


def tokens(prompt: str, chat: bool) -> Iterator[str]:
    """The tokens of the answer; the model has ended by itself when they run out.

    A completion of something unknown repeats the last word for ever (seen on real engines with
    random weights); a chat says the words back once.
    """
    answer = knows(prompt)
    if answer is None and not chat:
        words = prompt.split() or ["X"]
        yield from itertools.repeat(f" {words[-1]}")
        return
    words = (prompt if answer is None else answer).split()
    for number, word in enumerate(words):
        yield word if number == 0 and chat else f" {word}"
