"""Who starts a displaced container again, who needs it, and what a permission changes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from rollpin import owners, record, takeover
from rollpin.errors import ProfileError
from rollpin.note import displaced
from rollpin.observe import Container, HostState, Starter
from rollpin.observe_starters import starters
from rollpin.plan import Plan, decided_difference
from rollpin.policy import allowed_by_run
from rollpin.profile_values import Displace, displaces
from rollpin.report import plan_text
from rollpin.scripts import Bound, forward, render

from . import builders as a
from .builders import WHY, only

COMPOSE = "com.docker.compose"
SIDECAR = "8e" * 32


def unit(*commands: str, **changes: Any) -> Starter:
    given = {"name": "scan.service", "restart": "always", **changes}
    return Starter(commands=commands, **given)


def who(c: Container, *others: Container, **changes: Any) -> list[str]:
    return [x.who for x in owners.catches(c, a.host(c, *others, **changes))]


def anyway(**changes: Any) -> Plan:
    """The plan when the profile permits production."""
    wanted = a.profile(displaces=(Displace("glm53-pp4", None, "the profile"),))
    return a.plan(a.host(a.production(), **changes), wanted)


# --- services and crontabs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "ExecStart: /usr/bin/docker start -a glm53-pp4",
        "ExecStart: /usr/bin/docker -H unix:///run/docker.sock run --rm --name glm53-pp4 image",
        "ExecStart: /usr/bin/docker run --name=glm53-pp4 image",
        "ExecStart: /bin/sh -c 'docker pull image; docker restart glm53-pp4'",
        f"ExecStart: docker start {a.PP4}",
        f"ExecStart: docker start {a.PP4[:12]}",
        "ExecStop: /usr/bin/docker stop -t 20 glm53-pp4",
    ],
)
def test_a_service_that_starts_it_is_named(command: str) -> None:
    assert who(a.production(), starters=(unit(command),)) == ["the systemd unit scan.service"]


@pytest.mark.parametrize(
    "command",
    [
        "ExecStart: /usr/bin/docker start -a glm53-pp40",
        "ExecStart: /usr/bin/docker logs -f glm53-pp4",
        "ExecStart: /usr/bin/docker exec glm53-pp4 sh -c 'start me'",
        "ExecStart: /usr/bin/docker wait glm53-pp4",
        "ExecStartPre: /usr/bin/docker stop glm53-pp4",
        "ExecStart: /usr/bin/dockerd -H fd://",
        "ExecStart: /usr/bin/start glm53-pp4",
        "ExecStart: /usr/bin/docker compose up",
    ],
)
def test_a_service_that_only_speaks_of_it_is_none(command: str) -> None:
    assert who(a.production(), starters=(unit(command),)) == []


def test_what_is_neither_active_nor_enabled_starts_nothing() -> None:
    asleep = unit("docker start glm53-pp4", active=False, enabled=False)
    assert who(a.production(), starters=(asleep,)) == []
    ours = unit("docker start glm53-pp4", name="rollpin-guard-7.service")
    assert who(a.production(), starters=(ours,)) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "scan.service (Restart=always) runs it and may start it again once it is stopped"),
        ({"active": False}, "scan.service starts it at the next boot"),
        ({"triggers": ("scan.timer",)}, "scan.service, which scan.timer runs, starts it again"),
        ({"name": "/etc/cron.d/scan"}, "a line of /etc/cron.d/scan starts it again"),
    ],
)
def test_it_is_refused_with_what_it_means(changes: dict[str, Any], words: str) -> None:
    found = unit("docker start glm53-pp4", **changes)
    said = only(a.plan(a.host(a.production(), starters=(found,))))
    assert words in said
    assert "DISPLACES=glm53-pp4:anyway" in said
    assert "--data allow=glm53-pp4" in said


def test_what_is_not_known_is_refused() -> None:
    said = only(a.plan(a.host(a.production(), starters=WHY)))
    assert "whether a service of the host starts it again is not known (the daemon is away)" in said
    assert not a.plan(a.host(starters=WHY)).refused  # nothing is displaced


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        ("ExecStart: docker compose up", {"directory": "/srv/chat"}),
        ("ExecStart: docker compose -f /srv/chat/compose.yaml up", {}),
        ("ExecStart: docker compose -f compose.yaml up -d", {"directory": "/srv/chat/"}),
        ("ExecStart: docker compose -p chat up", {"directory": "/elsewhere"}),
        ("ExecStart: /usr/local/bin/docker-compose --project-directory /srv/chat up", {}),
        ("ExecStart: /bin/sh -c 'cd /srv/chat && docker compose up'", {}),
    ],
)
def test_a_service_that_brings_its_project_up(command: str, changes: dict[str, Any]) -> None:
    labels = {
        f"{COMPOSE}.project": "chat",
        f"{COMPOSE}.project.working_dir": "/srv/chat",
        f"{COMPOSE}.project.config_files": "/srv/chat/compose.yaml",
    }
    found = (unit(command, **changes),)
    assert who(a.production(labels=labels), starters=found) == ["the systemd unit scan.service"]
    other = {**labels, f"{COMPOSE}.project": "mail"}
    other |= {f"{COMPOSE}.project.working_dir": "/srv/mail"}
    other |= {f"{COMPOSE}.project.config_files": "/srv/mail/compose.yaml"}
    assert who(a.production(labels=other), starters=found) == []


# --- labels and other containers ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ({"com.docker.swarm.service.name": "chat"}, "the swarm service chat"),
        (
            {"io.kubernetes.pod.name": "chat-0", "io.kubernetes.pod.namespace": "llm"},
            "kubelet (pod llm/chat-0)",
        ),
        ({"com.hashicorp.nomad.alloc_id": "0123456789abcdef"}, "nomad (allocation 01234567)"),
        ({"autoheal": "true"}, "an autoheal (its label says so)"),
    ],
)
def test_labels_name_the_owner(labels: dict[str, str], named: str) -> None:
    assert who(a.production(labels=labels)) == [named]
    assert named in "".join(x.means for x in owners.catches(a.production(labels=labels), a.FREE))


def test_kubelet_is_known_by_the_name_too() -> None:
    pod = dataclasses.replace(a.production(), name="k8s_chat_chat-0_llm_0")
    assert who(pod) == ["kubelet (pod k8s_chat_chat-0_llm_0)"]


def healer(name: str, *env: str, argv: tuple[str, ...] = ()) -> Container:
    c = a.stranger(name)
    return dataclasses.replace(c, record={**c.record, "Config": {"Env": list(env), "Cmd": argv}})


def test_who_heals_it() -> None:
    every = healer("autoheal", "AUTOHEAL_CONTAINER_LABEL=all")
    labelled = healer("heal", "AUTOHEAL_CONTAINER_LABEL=heal-me")
    assert who(a.production(), every) == ["autoheal (autoheal)"]
    assert who(a.production(), a.down(every)) == []
    assert who(a.production(), labelled) == []
    assert who(a.production(labels={"heal-me": "true"}), labelled) == ["autoheal (heal)"]
    plain = healer("watchtower")
    assert who(a.production(), plain) == []
    revives = healer("watchtower", "WATCHTOWER_REVIVE_STOPPED=true")
    assert who(a.production(), revives) == ["watchtower (watchtower)"]
    assert who(a.production(), healer("watchtower", argv=("--revive-stopped",)))
    left_out = {"com.centurylinklabs.watchtower.enable": "false"}
    assert who(a.production(labels=left_out), revives) == []


def compose(c: Container, project: str, service: str, needs: str = "") -> Container:
    keys = {"project": project, "service": service, "depends_on": needs}
    return dataclasses.replace(c, labels={f"{COMPOSE}.{k}": v for k, v in keys.items()})


def test_who_of_its_project_depends_on_it() -> None:
    engine = compose(a.production(), "chat", "engine")
    needs = "db:service_healthy:false,engine:service_started:true"
    gateway = compose(a.stranger("gateway"), "chat", "gateway", needs)
    assert who(engine, gateway) == ["gateway of the compose project chat"]
    assert who(engine, a.down(gateway)) == []
    assert who(engine, compose(gateway, "mail", "gateway", needs)) == []
    assert who(engine, compose(gateway, "chat", "gateway", "engine2:service_started")) == []
    assert owners.belongs_to(engine) == "the compose project chat"
    assert owners.belongs_to(a.production()) == ""


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"NetworkMode": f"container:{a.PP4}"}, "network namespace"),
        ({"PidMode": "container:glm53-pp4"}, "process namespace"),
        ({"IpcMode": f"container:{a.PP4}"}, "IPC namespace"),
        ({"VolumesFrom": ["glm53-pp4:ro"]}, "volumes"),
        (
            {"NetworkMode": f"container:{a.PP4}", "VolumesFrom": [a.PP4]},
            "network namespace and volumes",
        ),
    ],
)
def test_a_sidecar_suffers(shares: dict[str, Any], words: str) -> None:
    sidecar = a.container("metrics", SIDECAR, gpus=(), **shares)
    said = only(a.plan(a.host(a.production(), sidecar)))
    assert f"metrics shares its {words}. docker stop metrics" in said
    assert who(a.production(), a.down(sidecar)) == []


def test_a_sidecar_that_is_displaced_too_comes_back_after_it() -> None:
    shares = {"NetworkMode": f"container:{a.PP4}"}
    for order in (1, -1):
        both = (a.production(), a.scan(network="host", **shares))[::order]
        plan = a.plan(a.host(*both))
        assert not plan.refused, plan.refusals
        assert [s.container.name for s in plan.stops] == ["glm53-pp4", "dsv4_scan"]


@pytest.mark.parametrize("others", [(), (a.down(a.production()),)])
def test_a_sidecar_whose_container_is_down_cannot_come_back(others: tuple[Container, ...]) -> None:
    orphan = a.scan(network=f"container:{a.PP4}")
    said = only(a.plan(a.host(orphan, *others, last_log={a.SCAN: None})))
    assert f"a namespace of the container {a.PP4[:12]}, which does not run" in said


def test_a_circle_has_an_order_too() -> None:
    one = compose(a.production(), "chat", "one", "two:service_started")
    two = compose(a.scan(), "chat", "two", "one:service_started")
    assert owners.in_order([one, two]) == [one, two]


def test_what_stands_in_for_it() -> None:
    task = {"com.docker.swarm.service.id": "s1", "com.docker.swarm.task.id": "t1"}
    assert owners.alike(task, {**task, "com.docker.swarm.task.id": "t2"})
    assert not owners.alike(task, {"com.docker.swarm.service.id": "s2"})
    assert not owners.alike({}, {})
    assert not owners.alike({f"{COMPOSE}.project": "chat"}, {f"{COMPOSE}.project": "chat"})


# --- permitted ----------------------------------------------------------------------------------


def test_permitted_the_plan_and_the_note_say_what_is_lost() -> None:
    plan = anyway(starters=(unit("docker start glm53-pp4"),))
    assert not plan.refused
    lost = "permitted by the profile: the systemd unit scan.service sees it stop"
    assert f"\n    {lost}" in plan_text(plan)
    assert f"\n- {lost}" in displaced(plan, plan.stops[0], a.AT)
    assert "permitted by" not in plan_text(anyway())


def test_the_hash_has_the_permission_and_the_owners() -> None:
    plain, permitted = a.plan(a.host(a.production())), anyway()
    owned = anyway(starters=(unit("docker start glm53-pp4"),))
    assert len({plain.hash, permitted.hash, owned.hash}) == 3
    assert decided_difference(permitted, owned) == [
        "the systemd unit scan.service starts glm53-pp4 or needs it"
    ]
    assert decided_difference(owned, permitted) == [
        "the systemd unit scan.service has left glm53-pp4"
    ]
    assert decided_difference(plain, permitted) == [
        "glm53-pp4 may be stopped by permission of the profile now"
    ]


@pytest.mark.parametrize("status", ["paused", "restarting"])
def test_its_own_state_is_permitted_too(status: str) -> None:
    wanted = a.profile(displaces=(Displace("glm53-pp4", None, "--data allow"),))
    plan = a.plan(a.host(a.production(status=status)), wanted)
    assert not plan.refused
    assert f"permitted by --data allow: it is {status}: " in plan_text(plan)
    assert plan.stops[0].was_running
    assert plan.stops[0].unsteady is (status == "restarting")
    stops = [x for x in forward(plan) if x.startswith(("docker stop", "docker unpause"))]
    woken = [f"docker unpause {a.PP4}"] if status == "paused" else []
    assert stops == [*woken, f"docker stop -t 120 {a.PP4}"]


def test_one_that_a_stop_deletes_is_permitted_and_made_again() -> None:
    gone = a.host(a.production(auto_remove=True, policy="no"))
    assert "a stop deletes it" in only(a.plan(gone))
    wanted = a.profile(displaces=(Displace("glm53-pp4", None, "the profile"),))
    plan = a.plan(gone, wanted)
    assert not plan.refused
    assert "permitted by the profile: it was run with --rm: the stop deletes it" in plan_text(plan)
    assert "--rm" in plan.stops[0].again.options
    back = render(plan, Bound("tx", a.R1))["restore.sh"].splitlines()
    wait = back.index(f"    going {a.PP4}")
    assert back[wait + 1].startswith(f"    back {a.PP4} glm53-pp4 yes ")


def test_idle_is_asked_for_all_the_same() -> None:
    wanted = a.profile(displaces=(Displace("dsv4_scan", 2700.0, "the profile"),))
    state = a.host(a.scan(), last_log={a.SCAN: a.NOW - 60})
    assert "only after 45 min idle" in only(a.plan(state, wanted))


def test_who_takes_over_knows_the_owners() -> None:
    plan = anyway(starters=(unit("docker start glm53-pp4"),))
    value = json.loads(record.release_json(plan, Bound("tx", a.R1), a.AT, None))
    records = json.loads(record.records_json(plan))
    again, _ = takeover.carried_on(value, records, None, "gpu1", a.BY)
    assert again.stops[0].catches == plan.stops[0].catches
    assert again.stops[0].permitted == "the profile"


def test_the_profile_permits_by_name() -> None:
    assert displaces("aa:anyway bb:idle=45m:anyway cc:anyway:idle=1m dd") == (
        Displace("aa", None, "the profile"),
        Displace("bb", 2700.0, "the profile"),
        Displace("cc", 60.0, "the profile"),
        Displace("dd"),
    )
    for wrong in ("aa:any", "aa:anyway:anyway", "aa:idle=1m:idle=2m", "aa:", "aa:anyway:"):
        with pytest.raises(ValueError, match="is not a condition; write aa:idle=45m, aa:anyway or"):
            displaces(wrong)


@pytest.mark.parametrize(
    "allow", ["dsv4_scan", " dsv4_scan ,dsv4_scan", ["dsv4_scan"], ("dsv4_scan",)]
)
def test_a_run_permits_by_name(allow: object) -> None:
    wanted, notes = allowed_by_run(a.profile(), allow)
    assert [(d.name, d.anyway) for d in wanted.displaces] == [
        ("glm53-pp4", ""),
        ("dsv4_scan", "--data allow"),
    ]
    assert notes == (
        "dsv4_scan may be displaced whatever is lost by that, permitted by --data allow",
    )


@pytest.mark.parametrize("allow", ["nobody", "", "dsv4_scan,", 7, True])
def test_a_run_permits_nobody_else(allow: object) -> None:
    with pytest.raises(ProfileError, match="is not in DISPLACES of the profile; there are: glm53-"):
        allowed_by_run(a.profile(), allow)


# --- as the fact tells it -----------------------------------------------------------------------

TOLD = """\
Script=/opt/scan.sh NAME=glm53-pp4
Script=/opt/scan.sh docker run -d   --name "$NAME"   image
Script=/opt/any.sh docker start ${1} ${2:-nothing} $LEFT
Cron=/etc/cron.d/scan PATH=/usr/bin
Cron=/etc/cron.d/scan */5 * * * * root docker start glm53-pp4
Cron=/var/spool/cron/crontabs/ops @reboot /opt/any.sh dsv4_scan

Restart=always
ExecStartPre={ path=/usr/bin/docker ; argv[]=/usr/bin/docker rm glm53-pp4 ; ignore_errors=yes ; }
ExecStart={ path=/usr/bin/docker ; argv[]=/usr/bin/docker start -a ${NAME} ; ignore_errors=no ; }
Environment=NAME=glm53-pp4 X=1
WorkingDirectory=!/srv
Id=scan@1.service
TriggeredBy=scan.timer scan.path
ActiveState=activating
UnitFileState=static

ExecStart={ path=/bin/sh ; argv[]=/bin/sh /opt/scan.sh ; ignore_errors=no ; start_time=[n/a] }
Id=script.service
ActiveState=inactive
UnitFileState=enabled

"""


def test_services_scripts_and_crontabs_are_read() -> None:
    assert starters(TOLD.splitlines()) == (
        Starter(
            "scan@1.service",
            (
                "ExecStartPre: /usr/bin/docker rm glm53-pp4",
                "ExecStart: /usr/bin/docker start -a glm53-pp4",
            ),
            active=True,
            enabled=False,
            restart="always",
            triggers=("scan.timer", "scan.path"),
            directory="/srv",
        ),
        Starter(
            "script.service",
            (
                "ExecStart: /bin/sh /opt/scan.sh",
                'docker run -d   --name "glm53-pp4"   image',
            ),
            active=False,
            enabled=True,
        ),
        Starter("/etc/cron.d/scan", ("root docker start glm53-pp4",)),
        Starter(
            "/var/spool/cron/crontabs/ops",
            ("/opt/any.sh dsv4_scan", "docker start dsv4_scan nothing $LEFT"),
        ),
    )


def test_what_is_told_leads_to_who() -> None:
    state: HostState = a.host(a.production(), starters=starters(TOLD.splitlines()))
    assert [x.who for x in owners.catches(a.production(), state)] == [
        "the systemd unit scan@1.service",
        "the systemd unit script.service",
        "a line of /etc/cron.d/scan",
    ]
    assert [x.who for x in owners.catches(a.scan(), state)] == [
        "a line of /var/spool/cron/crontabs/ops"
    ]


def test_a_service_without_a_name_is_not_understood() -> None:
    with pytest.raises(ValueError, match="without a name"):
        starters(["Restart=no", ""])


def test_nothing_told_is_nobody() -> None:
    assert starters([]) == ()
