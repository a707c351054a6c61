"""What a person reads: the note of a release, and the restore note of each displaced container.

Pure, and free of secrets: environments of containers are never in it.
"""

from __future__ import annotations

from rollpin import places, scripts
from rollpin.collisions import told_port
from rollpin.command_line import secret_free
from rollpin.places import STATE_DIR, release_dir
from rollpin.plan import Plan, Stop
from rollpin.scripts import Bound


def displaced(plan: Plan, stop: Stop, at: str) -> str:
    """Restore note of one displaced container: who, when, why, what it was, the one command."""
    c = stop.container
    ports = sorted({*c.ports} | ({told} if (told := told_port(c)) else set()))
    script = f"{release_dir(plan.service, plan.number)}/{places.giveback_name(c.id)}"
    state = c.status
    permitted = "".join(f"- permitted by {stop.permitted}: {x.lost}\n" for x in stop.catches)
    return f"""# {c.name} was displaced by {plan.service} release {plan.number}

To give it back, with its restart policy (refused while something else holds its GPUs or port):

    sudo sh {script}

To take {plan.service} away and put everything back that release {plan.number} stopped:

    sudo sh {release_dir(plan.service, plan.number)}/restore.sh rollback

- who: {plan.by}
- when: {at}
- why: it {" and ".join(stop.reasons)}; profile {plan.profile}
- container: {c.name}, id {c.id}
- image: {c.image}
- image id: {c.image_id}
- command: {secret_free(c.argv)}
- ports: {", ".join(map(str, ports)) or "none"}
- GPUs: {",".join(c.gpus) or "none"}
- restart policy: {stop.policy} (it is `no` while the container is displaced)
- it was: {state}
{permitted}- if it is removed it is made again, without {", ".join(stop.again.losses)}
"""


def release(plan: Plan, bound: Bound, at: str) -> str:
    """NOTE.md of a release."""
    stops = "\n".join(
        f"- {s.container.name} ({s.container.id[:12]}), {'ours' if s.ours else 'displaced'}:"
        f" {' and '.join(s.reasons)}; policy {s.policy}"
        + "".join(f"\n  - permitted by {s.permitted}: {x.lost}" for x in s.catches)
        for s in plan.stops
    )
    commands = "\n".join(f"    {line}" for line in scripts.forward(plan, bound.container))
    image = plan.pin.reference if plan.pin else "as recorded"
    return f"""# {plan.service} release {plan.number}

{plan.kind} by {plan.by}, {at}; profile {plan.profile or "as recorded"}, image {image}

To go back while it is being deployed:

    sudo sh {STATE_DIR}/RESTORE-{plan.service}

To go back later, while it serves:

    sudo sh {release_dir(plan.service, plan.number)}/restore.sh rollback

What it stops:

{stops or "- nothing"}

What it does, in order:

{commands}

Logs are in {release_dir(plan.service, plan.number)}/logs, the story is in
{STATE_DIR}/{plan.service}/journal.jsonl.
"""
