"""What the values of a profile may be: readers from text to typed values.

Every reader raises ValueError("what was found; what to do").
"""

from __future__ import annotations

import difflib
import posixpath
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from rollpin import durations
from rollpin.errors import UsageError

_LABEL = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")
_CONTAINER = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")
_SIZE = re.compile(r"([0-9]{1,12})([bkmg]?)")
_POWERS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3}
_SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1", "&>"})
_TYPOGRAPHIC = re.compile("[‘’“”–—−]")  # what documents make of quotes and dashes
_ULIMITS = (
    *("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc"),
    *("rss", "rtprio", "rttime", "sigpending", "stack"),
)


@dataclass(frozen=True)
class Mount:
    """A bind mount. `mode` is `ro` or `rw`; caches are always `rw`."""

    name: str
    host: str
    container: str
    mode: str = "rw"


@dataclass(frozen=True)
class Displace:
    """A container this profile may stop. `idle`: only after so many idle seconds; None: always.

    anyway: who permits that it is stopped though something is lost or fights back; "" for nobody.
    """

    name: str
    idle: float | None = None
    anyway: str = ""


def one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            close = difflib.get_close_matches(text, choices, n=1)
            near = f" (nearest: {close[0]})" if close else ""
            raise ValueError(f"{text!r} is not known; write one of {', '.join(choices)}{near}")
        return text

    return read


def switch(on: str, off: str) -> Callable[[str], bool]:
    choice = one_of(on, off)
    return lambda text: choice(text) == on


def label(what: str) -> Callable[[str], str]:
    """Reads a short lower-case name; `what` says of what."""

    def read(text: str) -> str:
        if not _LABEL.fullmatch(text):
            raise ValueError(
                f"{text!r} is not a {what}; write at most 41 of a-z 0-9 _ -,"
                " a letter or digit first"
            )
        return text

    return read


def service(given: object) -> str:
    """The service of `--data service=`. Raises UsageError."""
    try:
        return label("service name")(str(given))
    except ValueError as e:
        raise UsageError(f"service: {e}") from e


def duration(least: float = 0.0) -> Callable[[str], float]:
    """Reads a duration of at least `least` seconds."""

    def read(text: str) -> float:
        seconds = durations.seconds(text)
        if seconds < least:
            raise ValueError(f"{text} is too short; write at least {durations.spoken(least)}")
        return seconds

    return read


def whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
            raise ValueError(f"{text!r} is no number from {least} to {most}; write one")
        return int(text)

    return read


def optional(read: Callable[[str], str]) -> Callable[[str], str | None]:
    return lambda text: read(text) if text else None


def optional_port(text: str) -> int | None:
    return whole(1, 65535)(text) if text else None


def command(text: str) -> tuple[str, ...]:
    """The words of a command line, as a POSIX shell would split them and nothing more."""
    typographic = _TYPOGRAPHIC.search(text)
    if typographic:
        raise ValueError(f"holds {typographic[0]!r}; type plain quotes and hyphens instead")
    try:
        words = tuple(shlex.split(text, comments=False, posix=True))
    except ValueError as error:
        raise ValueError(f"the quotes do not balance ({error}); close every quote") from error
    if not words or not words[0]:
        raise ValueError("names no program; write the container's command line")
    operators = sorted(_SHELL_WORDS.intersection(words))
    if operators:
        raise ValueError(f"holds {operators[0]!r}, but no shell runs it; use bash -c '…' for that")
    if re.match(r"[A-Za-z_][A-Za-z0-9_]*=", words[0]):
        name = words[0].partition("=")[0]
        raise ValueError(f"starts with a variable, but no shell runs it; write ENV_{name}=value")
    return words


def gpus(text: str) -> str:
    """`all`, `none`, or indexes in ascending order: `0,1`."""
    if text in ("all", "none"):
        return text
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,3}", part) for part in parts):
        raise ValueError(f"{text!r} names no GPUs; write all, none, or indexes such as 0,1")
    indexes = sorted({int(part) for part in parts})
    if len(indexes) != len(parts):
        raise ValueError(f"{text!r} names a GPU twice; name each once")
    return ",".join(map(str, indexes))


def size(text: str) -> str:
    """A size as docker takes it, in lower case."""
    found = _SIZE.fullmatch(text.lower())
    if not found or not int(found[1]):
        raise ValueError(f"{text!r} is not a size; write a number and b, k, m or g: 32g")
    return text.lower()


def size_bytes(text: str) -> int:
    """Bytes of a size that `size` accepted."""
    found = _SIZE.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not a size; write a number and b, k, m or g: 32g")
    return int(found[1]) << (10 * _POWERS[found[2]])


def restart_policy(text: str) -> str:
    if not re.fullmatch(r"no|always|unless-stopped|on-failure(:[1-9][0-9]{0,5})?", text):
        raise ValueError(
            f"{text!r} is not a restart policy;"
            " write unless-stopped, always, on-failure, on-failure:N or no"
        )
    return text


def ulimit_name(label: str) -> str:
    """`MEMLOCK` → `memlock`, when docker knows it."""
    return one_of(*_ULIMITS)(label.lower())


def ulimit(text: str) -> str:
    """`soft` or `soft:hard`; -1 is unlimited."""
    found = re.fullmatch(r"(-1|[0-9]{1,18})(?::(-1|[0-9]{1,18}))?", text)
    if not found:
        raise ValueError(f"{text!r} is not a limit; write a number, soft:hard, or -1")
    soft, hard = int(found[1]), int(found[2] or found[1])
    if hard != -1 and (soft > hard or soft == -1):
        raise ValueError(f"{text!r} has a soft limit above the hard one; lower it")
    return text


def mount(text: str) -> Mount:
    """`host:container[:ro|rw]`; the name is set by the caller."""
    parts = text.split(":")
    if len(parts) not in (2, 3):
        raise ValueError(f"{text!r} is not a mount; write /host/path:/container/path[:ro|rw]")
    mode = one_of("ro", "rw")(parts[2]) if len(parts) == 3 else "rw"
    return Mount("", _absolute(parts[0]), _absolute(parts[1], root=False), mode)


def cache(text: str) -> Mount:
    """`host:container`, neither of them the root."""
    if text.count(":") != 1:
        raise ValueError(f"{text!r} is not a cache; write /host/path:/container/path")
    host, _, container = text.partition(":")
    return Mount("", _absolute(host, root=False), _absolute(container, root=False))


def secret_file(text: str) -> str:
    if not text.startswith(("/", "~/")):
        raise ValueError(f"{text!r} is not a file; write an absolute path or one that starts ~/")
    return text


def model_path(text: str) -> str | None:
    """A path inside the container, or a Hugging Face id."""
    return (_absolute(text) if text.startswith("/") else text) or None


def displaces(text: str) -> tuple[Displace, ...]:
    """`glm53-pp4 dsv4_scan:idle=45m scan:anyway`, separated by blanks or commas."""
    found: dict[str, Displace] = {}
    for item in re.split(r"[\s,]+", text.strip(" ,")):
        if not item:
            continue
        name, *conditions = item.split(":")
        if not _CONTAINER.fullmatch(name):
            raise ValueError(f"{name!r} is not a container name; write name or name:idle=45m")
        if name in found:
            raise ValueError(f"{name} is named twice; name it once")
        idle: float | None = None
        anyway = ""
        for condition in conditions:
            if condition == "anyway" and not anyway:
                anyway = "the profile"
            elif condition.startswith("idle=") and idle is None:
                idle = durations.seconds(condition.removeprefix("idle="))
            else:
                raise ValueError(
                    f"{condition!r} is not a condition; write {name}:idle=45m, {name}:anyway or"
                    f" {name}:idle=45m:anyway"
                )
        found[name] = Displace(name, idle, anyway)
    return tuple(found.values())


def words(text: str) -> tuple[str, ...]:
    """A list separated by blanks or commas."""
    return tuple(word for word in re.split(r"[\s,]+", text) if word)


def _absolute(path: str, root: bool = True) -> str:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not an absolute path; start it with /")
    if ".." in path.split("/"):
        raise ValueError(f"{path!r} climbs with ..; write where it leads")
    plain = "/" + posixpath.normpath(path).lstrip("/")
    if plain == "/" and not root:
        raise ValueError("the root directory cannot stand here; name a directory below it")
    return plain
