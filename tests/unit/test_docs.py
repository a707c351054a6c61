"""What is written down is there, and what is there is written down."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rollpin.cli.main import rollpin
from rollpin.status import COLUMNS
from rollpin.verdict import Word

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
for _folder in ("docs", "runbooks"):
    PAGES += sorted(f"{_folder}/{page.name}" for page in (ROOT / _folder).glob("*.md"))

# A path in the tree, as pages write it: deploys/glm53.py, docs/profile.md, scripts/test.
NAMED = re.compile(
    r"(?<![\w/.-])((?:deploys|inventory|roles|profiles|docs|runbooks|tests|src|scripts)/[\w./-]*\w)"
)
SCRIPTS = ["scripts/demo", "scripts/test", "scripts/check", "scripts/setup", ".ci/run"]

CACHES = {".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".git"}

# Examples, and files that a person makes.
NOT_OURS = {"inventory/known_hosts", "inventory/yours.py"}

# The lab's hosts have a user deploy; every other home or checkout is some machine's.
MACHINE = re.compile(r"(?<![\w.~-])/(?:work|home|Users|mnt)/(?!deploy/)[\w-]+/")
# docker.io is no registry to us but a word: of image references, and Debian's package.
REGISTRY = re.compile(
    r"\b(?:[\w-]+\.)*(?:ghcr\.io|quay\.io|gcr\.io|nvcr\.io|pkg\.dev|azurecr\.io|"
    r"pypi\.org|pythonhosted\.org|pypi\.python\.org|debian\.org|ubuntu\.com|"
    r"amazonaws\.com|hf-mirror\.com)\b"
)


def tracked() -> list[str]:
    """The files of the tree: those that git knows, and those that it does not ignore.

    Where there is no git (an unpacked archive), all but what tools leave.
    """
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        left = {".venv", "__pycache__"}
        found = (p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file())
        return [str(p) for p in found if not left & set(p.parts) and p.parts[0] not in CACHES]
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if (ROOT / line).is_file()]


def commands(
    group: click.Group = rollpin, before: str = "rollpin"
) -> Iterator[tuple[str, click.Command]]:
    """Every command that is shown, by the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if command.hidden:
            continue
        words = f"{before} {name}"
        if isinstance(command, click.Group):
            yield from commands(command, words)
        else:
            yield words, command


ALL_COMMANDS = list(commands())
TEXTS = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}


def test_there_is_something_to_look_at() -> None:
    words = [name for name, _ in ALL_COMMANDS]
    assert {"rollpin status", "rollpin lab up", "rollpin lab down"} <= set(words)
    assert len(tracked()) > 100


@pytest.mark.parametrize(("words", "command"), ALL_COMMANDS, ids=[w for w, _ in ALL_COMMANDS])
def test_every_command_has_help_and_a_line(words: str, command: click.Command) -> None:
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            shown = parameter.help or isinstance(parameter.type, click.Choice)
            assert shown, f"{words} {parameter.opts}"
    page = "docs/lab.md" if words.startswith("rollpin lab") else "README.md"
    assert words in TEXTS[page], f"{words} is not in {page}"


@pytest.mark.parametrize("group", ["rollpin status", "rollpin lab up", "rollpin lab down"])
def test_the_readme_names_the_commands(group: str) -> None:
    assert group in TEXTS["README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_exist(page: str) -> None:
    for path in NAMED.findall(TEXTS[page]):
        if path not in NOT_OURS:
            assert (ROOT / path).exists(), f"{page} names {path}"
    for target in re.findall(r"\]\(([^)#]+)\)", TEXTS[page]):
        if not target.startswith("http"):
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"


@pytest.mark.parametrize("folder", ["deploys", "scripts", "runbooks", "docs"])
def test_files_that_exist_are_named(folder: str) -> None:
    text = TEXTS["README.md"] + TEXTS["CONTRIBUTING.md"]
    for path in sorted((ROOT / folder).iterdir()):
        if path.is_file():
            assert f"{folder}/{path.name}" in text


def test_the_readme_has_every_verdict() -> None:
    for word in Word:
        assert f"| `{word.value}` |" in TEXTS["README.md"]


def test_columns_of_status_are_design_words() -> None:
    assert {"host", "service", "release", "digest", "profile", "since", "by"} <= set(COLUMNS)


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_not_too_wide(page: str) -> None:
    # tables and transcripts may be; running text may not
    for number, line in enumerate(TEXTS[page].splitlines(), 1):
        if not line.startswith(("|", "    ", "      ")):
            assert len(line) <= 150, f"{page}:{number}"


def test_nothing_of_one_machine_is_in_the_tree() -> None:
    here = "tests/unit/test_docs.py"
    faults = []
    for name in tracked():
        if name == here:
            continue
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for pattern in (MACHINE, REGISTRY):
            faults += [f"{name}: {found.group(0)}" for found in pattern.finditer(text)]
        if str(ROOT) in text:
            faults.append(f"{name}: {ROOT}")
    assert not faults


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_can_be_run_and_say_what_they_are(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & 0o111
    first, second = path.read_text().splitlines()[:2]
    assert first == "#!/usr/bin/env bash"
    assert second.startswith("# ")
