"""The rendered scripts: golden files, shellcheck, and hostile values that stay values."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rollpin import note, record, report, scripts
from rollpin.facts.host_state import observe_script
from rollpin.plan import Plan
from rollpin.scripts import Bound

from . import builders as a
from .cases import CASES, bound

IMAGE = {
    "repository": a.REPOSITORY,
    "tag": "latest",
    "digest": str(a.profile().pin),
    "id": "sha256:" + "9" * 64,
}
SHELLCHECK = Path(sys.executable).with_name("shellcheck")


def texts(plan: Plan, b: Bound) -> dict[str, str]:
    """Every file that the release gets on the host, and what the screen shows."""
    assert not plan.refused, plan.refusals
    image = IMAGE if plan.create else None
    released = record.release_json(plan, b, a.AT, image)
    assert "\n" not in released
    return {
        **scripts.render(plan, b, image),
        "NOTE.md": note.release(plan, b, a.AT),
        "release.json": json.dumps(json.loads(released), indent=2, sort_keys=True) + "\n",
        "plan.txt": report.plan_text(plan) + "\n",
        **{
            f"displaced-{s.container.id[:12]}.md": note.displaced(plan, s, a.AT)
            for s in plan.displaced
        },
    }


SHOWN = ("swap.sh", "commit.sh", "restore.sh", "NOTE.md", "plan.txt", "release.json")


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, golden: Callable[[str, dict[str, str]], None]) -> None:
    plan = CASES[case]()
    found = texts(plan, bound(plan))
    shown = {
        name: text
        for name, text in found.items()
        if name in SHOWN or name.startswith(("displaced-", "giveback-", "recreate-"))
    }
    assert set(SHOWN) <= set(shown)
    made = 1 if plan.create else 0  # the script that makes its own container again
    assert len(shown) == len(SHOWN) + 2 * len(plan.displaced) + 2 * len(plan.stops) + made
    golden(case, shown)


def every_script() -> dict[str, str]:
    """Each rendering that differs in more than its values."""
    out = {"observe.sh": "#!/bin/sh\n" + observe_script("glm53", "i", ["/a"], ["b"])}
    for case, make in CASES.items():
        plan = make()
        b = bound(plan)
        rendered = {n: t for n, t in scripts.render(plan, b, IMAGE).items() if n.endswith(".sh")}
        if case == "first_release_foreign":
            plan = dataclasses.replace(plan, stale=(7,))
            rendered["make_dir.sh"] = scripts.render_make_dir(plan, b)
            rendered["stage.sh"] = scripts.render_stage(plan, b, "sglang", "HF_TOKEN='a b'\n")
            rendered["unstage.sh"] = scripts.render_unstage(plan, b, True, "it's why")
        else:
            del rendered["arm.sh"], rendered["guard.sh"]
        out |= {f"{case}-{name}": text for name, text in rendered.items()}
    return out


def test_shellcheck_and_dash_find_nothing(tmp_path: Path) -> None:
    files = []
    for name, text in every_script().items():
        (tmp_path / name).write_text(text)
        files.append(str(tmp_path / name))
    assert len(files) > 25
    some = [files[i::4] for i in range(4)]
    running = [
        subprocess.Popen([SHELLCHECK, "-s", "sh", *part], stdout=subprocess.PIPE, text=True)
        for part in some
    ]
    assert [p.communicate()[0] for p in running] == [""] * 4
    assert [p.returncode for p in running] == [0] * 4
    for file in files:
        subprocess.run(["dash", "-n", file], check=True)
