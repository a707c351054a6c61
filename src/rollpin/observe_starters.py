"""What on a host may start containers, from the fact's lines. Pure.

`Script=PATH LINE` and `Cron=PATH LINE`, then one paragraph a service as `systemctl show` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rollpin.observe import Starter

_ASSIGNED = re.compile(r"\s*(?:export\s+|local\s+|readonly\s+)?([A-Za-z_]\w*)=(\S+)\s*$")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*|[1-9])(?::?-([^}]*))?\}|([A-Za-z_]\w*|[1-9]))")
_ARGV = re.compile(r"argv\[\]=(.*?) ; ignore_errors=")
# `* * * * *` or `@reboot`, and what follows
_SCHEDULE = re.compile(r"(?:@\w+|(?:\S+\s+){4}\S+)\s+(.*)")


def starters(lines: Iterable[str]) -> tuple[Starter, ...]:
    """Raises ValueError for a service without a name."""
    scripts: dict[str, list[str]] = {}
    crons: list[tuple[str, str]] = []
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if line.startswith("Script="):
            path, _, text = line.removeprefix("Script=").partition(" ")
            scripts.setdefault(path, []).append(text)
        elif line.startswith("Cron="):
            path, _, text = line.removeprefix("Cron=").partition(" ")
            crons.append((path, text))
        elif line.strip():
            paragraphs[-1].append(line)
        else:
            paragraphs.append([])
    out = [_service(one, scripts) for one in paragraphs if one]
    for path, text in crons:
        if found := _SCHEDULE.match(text.strip()):
            out.append(Starter(path, tuple(_with_scripts([found[1]], scripts, {}))))
    return tuple(out)


def _service(lines: Iterable[str], scripts: Mapping[str, list[str]]) -> Starter:
    values: dict[str, str] = {}
    commands: list[str] = []
    for line in lines:
        key, equals, value = line.partition("=")
        if not equals:
            continue
        if key.startswith("Exec"):
            # Its stop command names the container too, but starts nothing.
            commands += [f"{key}: {argv}" for argv in _ARGV.findall(value)]
        else:
            values[key] = value
    if not values.get("Id"):
        raise ValueError("a service without a name")
    env = dict(_assignments(values.get("Environment", "").split(" ")))
    return Starter(
        name=values["Id"],
        commands=tuple(_with_scripts(commands, scripts, env)),
        active=values.get("ActiveState") in ("active", "activating", "reloading", "deactivating"),
        enabled=values.get("UnitFileState") in ("enabled", "enabled-runtime", "generated"),
        restart=values.get("Restart", ""),
        triggers=tuple(values.get("TriggeredBy", "").split()),
        directory=values.get("WorkingDirectory", "").lstrip("!-"),
    )


def _with_scripts(
    commands: Iterable[str], scripts: Mapping[str, list[str]], env: Mapping[str, str]
) -> Iterable[str]:
    for command in commands:
        command = _expanded(command, env)
        yield command
        words = re.split(r"[\s;:='\"]+", command)
        for path, body in scripts.items():
            if path in words:
                given = words[words.index(path) + 1 :]
                known = {**env, **{str(n): word for n, word in enumerate(given[:9], 1)}}
                for name, value in _assignments(body):
                    known[name] = _expanded(value, known)
                yield from (_expanded(line, known) for line in body if "docker" in line)


def _assignments(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        if found := _ASSIGNED.fullmatch(line):
            yield found[1], found[2].strip("'\"")


def _expanded(text: str, env: Mapping[str, str]) -> str:
    """With the variables that are known; the others stay as they are."""

    def value(found: re.Match[str]) -> str:
        known = env.get(found[1] or found[3])
        return known if known is not None else (found[2] or found[0])

    return _VARIABLE.sub(value, text)
