"""The `docker create` command line of a release. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from rollpin import engine_flags
from rollpin.observe import Container
from rollpin.plan import Pin, Target
from rollpin.profile import Profile

LABEL = "rollpin"

# --api-key, --ssl-keyfile-password, HF_TOKEN; not --tokenizer-path, --max-new-tokens, --ssl-keyfile
_VALUED = r"(?:[\w-]*[-_])?(?:(?:api)?keys?|token|secret|password)(?:[-_]\w)?"
_FLAG = re.compile(f"--{_VALUED}", re.IGNORECASE)
_INSIDE = re.compile(
    rf"""(--{_VALUED}(?:=|\s+)|\b{_VALUED}=)('[^']*'|"[^"]*"|\S+)""", re.IGNORECASE
)


def create(profile: Profile, pin: Pin, name: str, number: int, fingerprint: str) -> tuple[str, ...]:
    """Every value in it is one argument. Secrets are named here (`-e NAME`), never valued.

    The restart policy is `no` until the commit: dockerd starts `always` containers at boot
    before it answers anyone.
    """
    argv = ["docker", "create", "--name", name, "--restart", "no"]
    for key, value in (
        ("service", profile.service),
        ("release", str(number)),
        ("profile", profile.name),
        ("fingerprint", fingerprint),
    ):
        argv += ["--label", f"{LABEL}.{key}={value}"]
    argv += ["--network", profile.network]
    if profile.network == "bridge":
        argv += ["--publish", f"{profile.port}:{profile.port}"]
    if profile.gpus == "all":
        argv += ["--gpus", "all"]
    elif profile.gpus != "none":
        argv += ["--gpus", f'"device={profile.gpus}"']  # docker wants the inner quotes
    if profile.ipc == "host":
        argv += ["--ipc", "host"]
    else:
        argv += ["--shm-size", profile.shm_size]
    if profile.init:
        argv.append("--init")
    for limit, value in profile.ulimits.items():
        argv += ["--ulimit", f"{limit}={value}"]
    # Given at creation: daemon.json does not reach existing containers.
    argv += ["--log-driver", "json-file", "--log-opt", f"max-size={profile.log_max_size}"]
    argv += ["--log-opt", f"max-file={profile.log_max_file}"]
    argv += ["--stop-timeout", str(round(profile.stop_timeout))]
    for mount in (*profile.mounts, *profile.caches):
        mode = f":{mount.mode}" if mount.mode == "ro" else ""
        argv += ["--volume", f"{mount.host}:{mount.container}{mode}"]
    for variable, value in profile.env.items():
        argv += ["--env", f"{variable}={value}"]
    for variable in profile.secrets:
        argv += ["--env", variable]
    return (*argv, pin.reference, *profile.argv)


def target(profile: Profile, container: str) -> Target:
    """What the release is judged on."""
    return Target(
        engine=profile.engine,
        container=container,
        name=profile.service,
        port=profile.port,
        network=profile.network,
        model_path=profile.model_path,
        flags=profile.engine_flags(),
        prompt=profile.health_prompt,
        expect=profile.health_expect,
        deadline=profile.start_deadline,
        settle=profile.settle,
    )


def foreign_target(container: Container, like: Target | None, port: int) -> Target | None:
    """What a container that rollpin did not create is judged on, read off its command line.

    None when it shows no engine that rollpin knows: then it can only be judged by its state.
    """
    words = " ".join(container.argv)
    engine = "sglang" if "sglang" in words else "vllm" if "vllm" in words else ""
    if not engine:
        return None
    written = engine_flags.value(container.argv, "--port") or ""
    return Target(
        engine=engine,
        container=container.id,
        name=container.name,
        port=int(written) if written.isdigit() else port,
        network=container.network,
        model_path=engine_flags.value(container.argv, "--model-path") or "",
        flags=engine_flags.flags(container.argv),
        prompt=like.prompt if like else "What is 7 times 6? Answer with the number only.",
        expect=like.expect if like else "42",
        deadline=like.deadline if like else 2700.0,
        settle=0.0,
    )


def secret_free(argv: Sequence[str]) -> str:
    """A command line for people, with the values of keys and tokens left out."""
    out: list[str] = []
    hide = False
    for word in argv:
        if word.startswith("--"):
            flag, equals, _ = word.partition("=")
            secret = bool(_FLAG.fullmatch(flag))
            hide = secret and not equals
            out.append(f"{flag}=***" if secret and equals else word)
        elif hide:
            out.append("***")  # vLLM takes several keys after one flag
        else:
            out.append(_INSIDE.sub(r"\1***", word))
    return shlex.join(out)
