"""Overlays: named changes to a profile (engine flags, environment), and where they are valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollpin import dotenv_strict, engine_flags
from rollpin import profile_values as values
from rollpin.dotenv_strict import Fault
from rollpin.errors import ProfileError
from rollpin.fields import Fields, Key

KEYS: Mapping[str, Key] = {
    "OVERLAY": Key("glm_parsers"),
    "HARDWARE": Key("pro6000"),
    "REASON": Key("what it is for"),
    "ADD_FLAGS": Key("--tool-call-parser glm47", ""),
    "STRIP_FLAGS": Key("--disable-radix-cache", ""),
}
PREFIXES = ("ENV_",)


@dataclass(frozen=True)
class Overlay:
    """Strip first, then add. `hardware`: the only hardware it is valid on."""

    path: Path
    name: str
    hardware: tuple[str, ...]
    reason: str
    add_flags: tuple[str, ...]
    strip_flags: tuple[str, ...]
    env: Mapping[str, str]
    warnings: tuple[str, ...]
    lines: Mapping[str, int]

    @classmethod
    def load(cls, path: Path) -> Overlay:
        """Reads a file. Raises ProfileError with every fault found, one per line."""
        return cls.parse(dotenv_strict.read_text(path), path)

    @classmethod
    def parse(cls, text: str, path: Path) -> Overlay:
        """Pure. Raises ProfileError with every fault found, one per line."""
        fields = Fields(dotenv_strict.parse(text, str(path)), KEYS, PREFIXES)
        overlay = cls(
            path=path,
            name=fields.take("OVERLAY", values.label("name of an overlay")),
            hardware=fields.take("HARDWARE", values.words),
            reason=fields.take("REASON", str),
            add_flags=fields.take("ADD_FLAGS", _flag_words),
            strip_flags=fields.take("STRIP_FLAGS", _flag_names),
            env=fields.environment(),
            warnings=tuple(fields.warnings),
            lines=fields.lines,
        )
        if fields.given("OVERLAY") and overlay.name != path.stem:
            fields.fault(
                "OVERLAY",
                f"OVERLAY={overlay.name} is in {path.name}; name the file {overlay.name}.env",
            )
        if not fields.faults and not (overlay.add_flags or overlay.strip_flags or overlay.env):
            fields.fault(
                "OVERLAY", "the overlay changes nothing; add ADD_FLAGS, STRIP_FLAGS or ENV_NAME"
            )
        if fields.faults:
            raise ProfileError("\n".join(map(str, fields.faults)))
        return overlay


def find(name: str | Path, profile: Path) -> Path:
    """The file of an overlay: a path as it is; a bare name in the overlays folder of `profile`.

    `profiles/pro6000/x.env` finds `profiles/overlays/NAME.env`. Reads nothing.
    """
    if isinstance(name, Path) or "/" in name or name.endswith(".env"):
        return Path(name)
    return profile.parent.parent / "overlays" / f"{name}.env"


def applied(
    argv: tuple[str, ...], env: Mapping[str, str], hardware: str, overlays: Sequence[Overlay]
) -> tuple[tuple[str, ...], dict[str, str], tuple[Fault, ...]]:
    """Command line and environment with the overlays in the order given, and what forbids it."""
    faults: list[Fault] = []
    environment = dict(env)
    set_by: dict[str, Overlay] = {}
    for overlay in overlays:
        if hardware not in overlay.hardware:
            valid = ", ".join(overlay.hardware)
            faults.append(
                _fault(
                    overlay,
                    "HARDWARE",
                    f"overlay {overlay.name} is valid on {valid}, the profile is for {hardware};"
                    " leave the overlay out",
                )
            )
        argv = engine_flags.without(argv, overlay.strip_flags)
        before = set(engine_flags.repeated(argv))
        argv += overlay.add_flags
        for flag in engine_flags.repeated(argv):
            if flag not in before:
                faults.append(
                    _fault(
                        overlay,
                        "ADD_FLAGS",
                        f"overlay {overlay.name} gives {flag} a second time;"
                        f" add STRIP_FLAGS={flag} to replace it",
                    )
                )
        for name, value in overlay.env.items():
            other = set_by.get(name)
            if other is not None and environment[name] != value:
                faults.append(
                    _fault(
                        overlay,
                        f"ENV_{name}",
                        f"overlay {other.name} sets {name} differently; leave one of them out",
                    )
                )
            environment[name] = value
            set_by[name] = overlay
    return argv, environment, tuple(faults)


def _fault(overlay: Overlay, key: str, text: str) -> Fault:
    return Fault(str(overlay.path), overlay.lines.get(key, 1), text)


def _flag_words(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    found = values.command(text)
    if not engine_flags.is_flag(found[0]):
        raise ValueError(f"starts with {found[0]!r}; start with a flag")
    return found


def _flag_names(text: str) -> tuple[str, ...]:
    found = values.words(text)
    for name in found:
        if not engine_flags.is_flag(name) or "=" in name:
            raise ValueError(f"{name!r} is not a flag's name; write names only: --a --b")
    return found
