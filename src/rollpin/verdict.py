"""How a transaction ended, in one word and one line. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Word(Enum):
    """The words of design.md. `good` ones leave the host's exit status at 0."""

    LIVE = "live"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    HELD_BACK = "held back"
    RESTORED = "restored"
    RESTORED_UNVERIFIED = "restored, unverified"
    RESTORE_FAILED = "restore-failed"
    IN_DOUBT = "in doubt"

    @property
    def good(self) -> bool:
        return self in (Word.LIVE, Word.UNCHANGED)


@dataclass(frozen=True)
class Verdict:
    """The end of one host's transaction.

    outage: seconds in which nobody served, None when nothing was stopped or it was not measured.
    """

    host: str
    service: str
    word: Word
    release: int = 0
    digest: str = ""
    outage: float | None = None
    note: str = ""
    reason: str = ""
    warnings: tuple[str, ...] = ()
    nothing_stopped: bool = False  # the plan had nothing running to stop

    def line(self) -> str:
        """What the end of a run prints for the host."""
        parts = [f"{self.host}: {self.service} {self.word.value}"]
        if self.word in (Word.RESTORED, Word.RESTORED_UNVERIFIED) and self.release:
            # What serves is another one.
            image = f" (image {self.digest})" if self.digest else ""
            parts.append(f"release {self.release}{image} was taken back")
        else:
            parts += [f"release {self.release}"] if self.release else []
            parts += [self.digest] if self.digest else []
        parts.append(self._outage())
        if self.note:
            parts.append(f"note {self.note}")
        text = ", ".join(parts)
        if self.reason:
            text += f"\n    {self.reason}"
        for warning in self.warnings:
            text += f"\n    warning: {warning}"
        return text

    def _outage(self) -> str:
        if self.outage is not None:
            return f"outage {self.outage:.2f} s"
        if self.word is Word.REFUSED:
            return "nothing was stopped"
        if self.word is Word.UNCHANGED or self.nothing_stopped:
            return "no outage"
        return "outage not measured"
