"""What a person sees. Whole plans stand in the golden files."""

from __future__ import annotations

import dataclasses

import pytest

from rollpin import report
from rollpin.observe import Unknown
from rollpin.plan_rollback import plan_rollback
from rollpin.report import plan_text
from rollpin.verdict import Verdict, Word

from . import builders as a


def test_a_refused_plan_shows_every_refusal_and_no_command() -> None:
    plan = a.plan(a.host(missing_tools=("flock",), privileged=False))
    text = plan_text(plan)
    assert text.startswith("gpu1: glm53: refused, nothing would be touched\n  refused: ")
    assert text.count("  refused: ") == 2
    assert "docker create" not in text
    assert "--data plan=" not in text


def test_a_plan_without_a_pin() -> None:
    text = plan_text(a.plan(a.host(), pin=Unknown("503")))
    assert "could not be resolved to a digest (503)" in text
    assert "pinned to" not in text


def test_an_unchanged_plan() -> None:
    text = plan_text(a.plan(a.with_release_1().state))
    assert text.splitlines()[0] == (
        "gpu1: glm53: unchanged, release 1 is what the profile asks for"
    )
    assert "docker" not in text
    assert "pulled" not in text


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("profile", "by the profile"),
        ("inventory", "by the inventory's mirror"),
        ("recorded", "as release 0 recorded it"),
        ("resolved", "the tag was resolved just now and is recorded with the release"),
    ],
)
def test_where_the_pin_comes_from(source: str, words: str) -> None:
    text = plan_text(a.plan(a.host(), pin=a.pin(source=source)))
    assert f"lmsysorg/sglang:latest pinned to {a.profile().pin} ({words}), to be pulled" in text


def test_notes_and_warnings_are_shown() -> None:
    wanted, notes = a.impatient(a.profile(), idle="2s")
    text = plan_text(a.plan(a.host(), wanted, notes=notes, pin=a.pin(tag_now=a.DIGEST)))
    said = "idle condition of dsv4_scan shortened from 45 min to 2 s by inventory data rollpin_idle"
    assert f"  note: {said}\n" in text
    assert "  warning: lmsysorg/sglang:latest points to sha256:aaaa" in text


def test_one_that_only_loses_its_policy() -> None:
    text = plan_text(a.plan(a.host(a.scan(status="exited"), last_log={})))
    assert "  takes the restart policy of dsv4_scan (displaced, with a restore note)" in text
    assert "docker stop" not in text


def test_a_rollback_names_its_target() -> None:
    state = a.with_release_2().state
    assert "rollback to release 1, as release 3 (now: release 2)" in plan_text(
        plan_rollback(state, "glm53", a.BY)
    )


def test_a_plan_is_shown_once_until_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    plan = dataclasses.replace(a.plan(a.host()), host="shown-once")
    report.show(plan)
    assert capsys.readouterr().err == plan_text(plan) + "\n"
    report.show(plan)
    assert capsys.readouterr().err == ""
    other = dataclasses.replace(plan, notes=("more",))
    report.show(other)
    assert "note: more" in capsys.readouterr().err


def test_verdicts_are_kept_by_host_and_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_VERDICTS", {("other", "s"): Verdict("other", "s", Word.LIVE)})
    verdict = Verdict("gpu1", "glm53", Word.RESTORED)
    report.add(verdict)
    assert report._VERDICTS.get(("gpu1", "glm53")) is verdict
    assert report._VERDICTS.get(("gpu2", "glm53")) is None
