"""What an inventory may change about a profile: host data whose names start with `rollpin_`.

Pure. Every change is said in a plain sentence, for the plan to repeat.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from rollpin import durations, image_ref
from rollpin.errors import ProfileError
from rollpin.fields import ENV_NAME
from rollpin.image_ref import ImageRef
from rollpin.profile import LEAST_LEASE, Profile

HOST_DATA = (
    "rollpin_idle",
    "rollpin_settle",
    "rollpin_start_deadline",
    "rollpin_lease",
    "rollpin_env",
    "rollpin_mirrors",
)


def lease_of_run(profile: Profile, lease: object) -> tuple[Profile, tuple[str, ...]]:
    """The profile with the lease that one run asks for: `--data lease=30s`. Raises ProfileError."""
    change = _Change(profile, {"lease": lease}, origin="--data")
    change.time("lease", "guard_lease", "lease of the guard", LEAST_LEASE)
    if change.faults:
        raise ProfileError("\n".join(change.faults))
    return change.profile, tuple(change.notes)


def allowed_by_run(profile: Profile, allow: object) -> tuple[Profile, tuple[str, ...]]:
    """The profile with what one run permits: `--data allow=NAME,NAME`. Raises ProfileError."""
    change = _Change(profile, {"allow": allow}, origin="--data")
    change.allowed()
    if change.faults:
        raise ProfileError("\n".join(change.faults))
    return change.profile, tuple(change.notes)


def lease_seconds(value: object) -> float:
    """A lease without a profile. Raises ValueError with what to write."""
    length = _duration(value)
    if length < LEAST_LEASE:
        # It would be over before the controller can renew it.
        raise ValueError(f"{value} is too short; write at least {durations.spoken(LEAST_LEASE)}")
    return length


def adjusted(
    profile: Profile, data: Mapping[str, object], also_known: Collection[str] = ()
) -> tuple[Profile, tuple[str, ...]]:
    """The profile as this host gets it, and what was changed.

    `also_known`: names of other `rollpin_` data. Raises ProfileError with every fault in `data`.
    """
    change = _Change(profile, data)
    change.misspelt(also_known)
    change.idle()
    change.time("rollpin_settle", "settle", "settling time", 0)
    change.time("rollpin_start_deadline", "start_deadline", "start-up deadline", 1)
    change.time("rollpin_lease", "guard_lease", "lease of the guard", LEAST_LEASE)
    change.environment()
    change.mirror()
    if change.faults:
        raise ProfileError("\n".join(change.faults))
    return change.profile, tuple(change.notes)


@dataclass
class _Change:
    profile: Profile
    data: Mapping[str, object]
    origin: str = "inventory data"
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def set(self, **fields: Any) -> None:
        self.profile = dataclasses.replace(self.profile, **fields)

    def fault(self, name: str, text: str) -> None:
        self.faults.append(f"{self.origin} {name}: {text}")

    def note(self, name: str, text: str) -> None:
        self.notes.append(f"{text} by {self.origin} {name}")

    def misspelt(self, also_known: Collection[str]) -> None:
        known = {name.removeprefix("rollpin_"): name for name in (*HOST_DATA, *also_known)}
        for name in self.data:
            rest = name.removeprefix("rollpin_")
            if rest == name or rest in known:
                continue
            close = difflib.get_close_matches(rest, known, n=1, cutoff=0.75)
            if close:
                self.fault(name, f"this name is not known; did you mean {known[close[0]]}?")

    def idle(self) -> None:
        idle = self._seconds("rollpin_idle", 0)
        if idle is None:
            return
        displaces = []
        for one in self.profile.displaces:
            if one.idle is not None:
                self._changed("rollpin_idle", f"idle condition of {one.name}", one.idle, idle)
                one = dataclasses.replace(one, idle=idle)
            displaces.append(one)
        self.set(displaces=tuple(displaces))

    def allowed(self) -> None:
        given = self.data["allow"]
        words = given if isinstance(given, list | tuple) else str(given).split(",")
        names = list(dict.fromkeys(str(word).strip() for word in words))
        known = [one.name for one in self.profile.displaces]
        for name in names:
            if name not in known:
                offered = ", ".join(known) or "none"
                self.fault(
                    "allow",
                    f"{name!r} is not in DISPLACES of the profile; there are: {offered}",
                )
        displaces = []
        for one in self.profile.displaces:
            if one.name in names:
                self.note(
                    "allow", f"{one.name} may be displaced whatever is lost by that, permitted"
                )
                one = dataclasses.replace(one, anyway=one.anyway or "--data allow")
            displaces.append(one)
        self.set(displaces=tuple(displaces))

    def time(self, name: str, attribute: str, words: str, least: float) -> None:
        after = self._seconds(name, least)
        if after is not None:
            self._changed(name, words, getattr(self.profile, attribute), after)
            self.set(**{attribute: after})

    def environment(self) -> None:
        name = "rollpin_env"
        env = dict(self.profile.env)
        for variable, value in self._table(name, self.data.get(name, {})).items():
            if not ENV_NAME.fullmatch(variable):
                self.fault(name, f"{variable!r} is not the name of a variable; correct it")
            elif variable in self.profile.secrets:
                self.fault(name, f"{variable} is a SECRET_ of the profile; take it out here")
            elif not _is_text_or_number(value) or "\0" in str(value):
                self.fault(name, f"{variable} is {value!r}; write text in quotes")
            elif env.get(variable) != str(value):
                verb = "changed" if variable in env else "set"
                self.note(name, f"environment variable {variable} {verb} to {str(value)!r}")
                env[variable] = str(value)
        self.set(env=env)

    def mirror(self) -> None:
        name = "rollpin_mirrors"
        for repository, entry in self._table(name, self.data.get(name, {})).items():
            mirror = self._table(name, entry, repository)
            for key in set(mirror) - {"repository", "pins"}:
                self.fault(name, f"{repository} has {key!r}; only repository and pins belong there")
            target = self._checked(name, mirror.get("repository"), image_ref.repository, repository)
            pins: dict[str, str] = {}
            for tag, digest in self._table(name, mirror.get("pins", {}), repository).items():
                pins[tag] = self._checked(name, digest, image_ref.digest, f"{repository}:{tag}")
            if image_ref.same_repository(repository, self.profile.image_repository):
                self._use_mirror(name, target, pins)

    def _use_mirror(self, name: str, repository: str, pins: Mapping[str, str]) -> None:
        own = self.profile.own_image
        pin = pins.get(own.tag or "", own.pin)
        if pin == own.pin:
            kept = "the pin of the profile stays" if pin else "no pin is given, as in the profile"
        else:
            kept = f"pin {_short(own.pin)} replaced with {_short(pin)}" if own.pin else "pin given"
        self.set(image_repository=repository, pin=pin, mirrored_from=str(own))
        there = ImageRef(repository, own.tag)
        self.note(name, f"image {ImageRef(own.repository, own.tag)} mapped to {there} ({kept})")

    def _changed(self, name: str, words: str, before: float, after: float) -> None:
        if after != before:
            verb = "shortened" if after < before else "lengthened"
            spoken = f"from {durations.spoken(before)} to {durations.spoken(after)}"
            self.note(name, f"{words} {verb} {spoken}")

    def _seconds(self, name: str, least: float) -> float | None:
        value = self.data.get(name)
        if value is None:
            return None
        try:
            number = _duration(value)
        except ValueError as error:
            self.fault(name, str(error))
            return None
        if number < least:
            self.fault(name, f"{value} is too short; write at least {durations.spoken(least)}")
            return None
        return number

    def _table(self, name: str, value: object, inside: str = "") -> dict[str, object]:
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return dict(value)
        where = f"{inside} is" if inside else "it is"
        self.fault(name, f"{where} {value!r}; write a dictionary with text keys")
        return {}

    def _checked(self, name: str, value: object, read: Callable[[str], str], inside: str) -> str:
        try:
            return read(value if isinstance(value, str) else repr(value))
        except ValueError as error:
            self.fault(name, f"{inside}: {error}")
            return ""


def _is_text_or_number(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _duration(value: object) -> float:
    return durations.seconds(value) if isinstance(value, str) else _number(value)


def _number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
        return float(value)
    raise ValueError(f"{value!r} is not a duration; write seconds, or a text such as '45m'")


def _short(pin: str | None) -> str:
    return (pin or "")[: len("sha256:") + 12]
