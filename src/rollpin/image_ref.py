"""Image references: `repository[:tag][@sha256:…]`, taken apart and put together."""

from __future__ import annotations

import re
from dataclasses import dataclass

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?/)"
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_HOST}?{_PART}(?:/{_PART})*")


@dataclass(frozen=True)
class ImageRef:
    repository: str
    tag: str | None = None
    pin: str | None = None

    @classmethod
    def parse(cls, text: str) -> ImageRef:
        """Raises ValueError with what to write instead."""
        name, at, digest = text.partition("@")
        if at and not DIGEST.fullmatch(digest):
            raise ValueError(f"{digest!r} is not a digest; write sha256: and 64 hex digits")
        head, colon, tag = name.rpartition(":")
        if not colon or "/" in tag:  # no tag; a colon can only be a registry's port
            head, tag = name, ""
        elif not _TAG.fullmatch(tag):
            raise ValueError(f"{tag!r} is not a tag; write repository:tag")
        return cls(repository(head), tag or None, digest or None)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        pin = f"@{self.pin}" if self.pin else ""
        return f"{self.repository}{tag}{pin}"


def repository(text: str) -> str:
    """`text` when it names a repository. Raises ValueError with what to write instead."""
    if not _REPOSITORY.fullmatch(text):
        raise ValueError(f"{text!r} is not a repository; write it as docker pull takes it")
    return text


def digest(text: str) -> str:
    """`text` when it is a digest. Raises ValueError with what to write instead."""
    if not DIGEST.fullmatch(text):
        raise ValueError(f"{text!r} is not a digest; write sha256: and 64 hex digits")
    return text


def same_repository(one: str, other: str) -> bool:
    """True when Docker reads both as the same repository (Docker Hub has several spellings)."""
    return _familiar(one) == _familiar(other)


def _familiar(text: str) -> str:
    for prefix in ("docker.io/", "index.docker.io/"):
        text = text.removeprefix(prefix)
    return text.removeprefix("library/")
