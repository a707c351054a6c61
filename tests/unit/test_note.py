"""The notes for people: what they must say stands in the golden files; what they must not, here."""

from __future__ import annotations

from rollpin import note, places, record, scripts
from rollpin.scripts import Bound

from . import builders as a
from .cases import CASES, bound

SECRET = "sk-very-secret"  # on the command line of dsv4_scan


def test_no_note_and_no_script_shows_a_secret_of_a_displaced_container() -> None:
    container = a.scan()
    assert SECRET in container.argv
    container.record["Config"]["Env"].append("HF_TOKEN=hf_secret")
    plan = a.plan(a.host(container))
    b = Bound("tx", a.R1)
    texts = [
        *(t for name, t in scripts.render(plan, b).items() if not places.private(name)),
        note.release(plan, b, a.AT),
        *(note.displaced(plan, s, a.AT) for s in plan.displaced),
        record.release_json(plan, b, a.AT, None),
    ]
    assert len(texts) == 11
    for text in texts:
        assert SECRET not in text
        assert "hf_secret" not in text


def test_the_restore_note_says_the_one_command() -> None:
    plan = CASES["first_release_foreign"]()
    for stop in plan.displaced:
        text = note.displaced(plan, stop, a.AT)
        script = places.giveback_name(stop.container.id)
        assert f"    sudo sh /var/lib/rollpin/glm53/releases/1/{script}\n" in text
        assert script in scripts.render(plan, bound(plan))
        # Also right when a newer release was taken back meanwhile, where RESTORE-glm53 is not.
        assert "    sudo sh /var/lib/rollpin/glm53/releases/1/restore.sh rollback\n" in text
        for words in (
            a.BY,
            a.AT,
            stop.container.id,
            stop.container.image,
            f"restart policy: {stop.policy}",
            "it was: running",
        ):
            assert words in text


def test_ports_are_those_published_and_those_told() -> None:
    plan = a.plan(a.host(a.production(ports=(8080,))))
    assert "- ports: 8080, 30000\n" in note.displaced(plan, plan.displaced[0], a.AT)


def test_a_container_that_was_down() -> None:
    plan = a.plan(a.host(a.scan(status="exited"), last_log={}))
    assert "- it was: exited\n" in note.displaced(plan, plan.displaced[0], a.AT)


def test_a_release_that_stops_nothing() -> None:
    plan = a.plan(a.host())
    assert "- nothing\n" in note.release(plan, Bound("tx", a.R1), a.AT)
