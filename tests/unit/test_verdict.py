"""The one line per host."""

from __future__ import annotations

import pytest

from rollpin.verdict import Verdict, Word


def test_the_words_are_those_of_the_design() -> None:
    assert [w.value for w in Word] == [
        "live",
        "unchanged",
        "refused",
        "held back",
        "restored",
        "restored, unverified",
        "restore-failed",
        "in doubt",
    ]


@pytest.mark.parametrize("word", Word)
def test_only_two_are_good(word: Word) -> None:
    assert word.good is (word in (Word.LIVE, Word.UNCHANGED))


@pytest.mark.parametrize(
    ("verdict", "line"),
    [
        (
            Verdict("gpu1", "glm53", Word.LIVE, 7, "sha256:ab", 0.154, "/n/NOTE.md"),
            "gpu1: glm53 live, release 7, sha256:ab, outage 0.15 s, note /n/NOTE.md",
        ),
        (
            Verdict("gpu1", "glm53", Word.LIVE, 1),
            "gpu1: glm53 live, release 1, outage not measured",
        ),
        (
            Verdict("gpu1", "glm53", Word.LIVE, 1, nothing_stopped=True),
            "gpu1: glm53 live, release 1, no outage",
        ),
        (
            Verdict("gpu1", "glm53", Word.UNCHANGED, 7),
            "gpu1: glm53 unchanged, release 7, no outage",
        ),
        (
            Verdict("gpu1", "glm53", Word.REFUSED, reason="why"),
            "gpu1: glm53 refused, nothing was stopped\n    why",
        ),
        (
            Verdict("gpu1", "glm53", Word.RESTORED, 8, outage=12.0, warnings=("a", "b")),
            "gpu1: glm53 restored, release 8 was taken back, outage 12.00 s\n"
            "    warning: a\n    warning: b",
        ),
        (
            Verdict("gpu1", "glm53", Word.IN_DOUBT, 8),
            "gpu1: glm53 in doubt, release 8, outage not measured",
        ),
    ],
)
def test_line(verdict: Verdict, line: str) -> None:
    assert verdict.line() == line
