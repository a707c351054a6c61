"""The releases of a host, whatever people and full disks did to their directories."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rollpin.facts.host_state import observe_script
from rollpin.observe import (
    Unknown,
)
from rollpin.observe_parse import parse_host_state

from .test_observe import edited


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("null", "it is missing or empty"),
        ('{"at": "2026', "not JSON: Unterminated string"),
        ("?x??", "not JSON: "),
        ("[1,2]", "it is no JSON object"),
        ('{"format":1,"service":"glm53","number":2}', "its stops are not complete"),
        ('{"format":1,"service":"glm53","number":1}', "it is the record of glm53 release 1"),
        ('{"format":9}', "its format is 9, not 1"),
        (
            '{"format":1,"service":"glm53","number":2,"stops":[{"id":"x"}],"starts":[]}',
            "its stops are not complete",
        ),
        (
            '{"format":1,"service":"glm53","number":2,"stops":[],"starts":[]}',
            "it does not say what serves",
        ),
    ],
)
def test_a_damaged_record_is_told_and_hides_no_other(text: str, fault: str) -> None:
    good = '{"format":1,"service":"glm53","number":1,"stops":[],"starts":[],"serves":null}'
    rows = [f"glm53 1 committed 5 {good}", f"glm53 2 committed 5 {text}", "glm53 3 staged 5 {"]
    seen = edited("docker26_cdi", "releases", rows).releases
    assert not isinstance(seen, Unknown)
    assert [r.fault.startswith(fault) for r in seen[1:2]] == [True], seen[1].fault
    assert (seen[0].fault, seen[2].fault) == ("", "")
    assert (seen[1].record, seen[2].record) == ({}, {})
    assert seen[0].record["serves"] is None


def test_the_directories_of_releases_are_read_whatever_lies_there(tmp_path: Path) -> None:
    """observe.sh itself, on a state directory that people and full disks have been at."""
    for name in ("1", "2", "3", "abc", "007", "x y"):
        (tmp_path / "glm53" / "releases" / name).mkdir(parents=True)
    (tmp_path / "not ours" / "releases" / "1").mkdir(parents=True)
    at = tmp_path / "glm53" / "releases"
    for name in ("1", "2", "3"):
        (at / name / "committed").touch()
    (at / "1" / "release.json").write_bytes(b"\xff\xfe\x00garbage")
    (at / "2" / "release.json").mkdir()
    script = observe_script().replace("STATE=/var/lib/rollpin", f"STATE={tmp_path}")
    said = subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout
    seen = parse_host_state(said.decode().splitlines()).releases
    assert not isinstance(seen, Unknown)
    assert [(r.service, r.number, bool(r.fault)) for r in seen] == [
        ("glm53", 1, True),
        ("glm53", 2, True),
        ("glm53", 3, True),
    ]
