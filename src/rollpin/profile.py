"""Profiles: one `.env` file, a complete serving recipe. docs/profile.md documents every key.

Values are pure: what a profile says depends on its text and its overlays, on nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollpin import dotenv_strict, engine_flags, image_ref, overlay
from rollpin import profile_values as values
from rollpin.errors import ProfileError
from rollpin.fields import ENV_NAME, Fields, Key
from rollpin.image_ref import ImageRef
from rollpin.overlay import Overlay
from rollpin.profile_values import Displace, Mount

LEAST_LEASE = 2.0

KEYS: Mapping[str, Key] = {
    "SERVICE": Key("glm53"),
    "ENGINE": Key("sglang"),
    "HARDWARE": Key("pro6000"),
    "IMAGE": Key("lmsysorg/sglang:latest"),
    "PIN": Key("sha256:" + "0" * 64, ""),
    "COMMAND": Key("python3 -m sglang.launch_server --model-path org/model --port 30000"),
    "PORT": Key("30000", ""),
    "MODEL_PATH": Key("org/model", ""),
    "GPUS": Key("all", "all"),
    "NETWORK": Key("host", "host"),
    "IPC": Key("private", "private"),
    "SHM_SIZE": Key("32g", "32g"),
    "INIT": Key("yes", "yes"),
    "RESTART_POLICY": Key("unless-stopped", "unless-stopped"),
    "LOG_MAX_SIZE": Key("100m", "100m"),
    "LOG_MAX_FILE": Key("5", "5"),
    "DISPLACES": Key("glm53-pp4 dsv4_scan:idle=45m", ""),
    "DISPLACE_STOP_TIMEOUT": Key("120s", "120s"),
    "STOP_TIMEOUT": Key("120s", "120s"),
    "FAILED_STOP_TIMEOUT": Key("10s", "10s"),
    "START_DEADLINE": Key("45m", "45m"),
    "SETTLE": Key("60s", "60s"),
    "HEALTH_PROMPT": Key(
        "What is 7 times 6? Answer with the number only.",
        "What is 7 times 6? Answer with the number only.",
    ),
    "HEALTH_EXPECT": Key("42", "42"),
    "GUARD": Key("on", "on"),
    "GUARD_LEASE": Key("2m", "2m"),
    "REQUIRES": Key("driver 580 or newer", ""),
    "NOTES": Key("anything", ""),
}
PREFIXES = ("ENV_", "SECRET_", "MOUNT_", "CACHE_", "ULIMIT_")


@dataclass(frozen=True)
class Profile:
    """A serving recipe with its overlays applied. Times are seconds, paths are absolute."""

    path: Path
    name: str
    service: str
    engine: str
    hardware: str
    image_repository: str
    image_tag: str | None
    pin: str | None
    mirrored_from: str | None  # the profile's own repository[:tag][@pin], when a mirror replaced it
    argv: tuple[str, ...]
    port: int
    model_path: str
    gpus: str  # all, none, or ascending indexes: 0,1
    network: str
    ipc: str
    shm_size: str
    init: bool
    restart_policy: str
    log_max_size: str
    log_max_file: int
    ulimits: Mapping[str, str]  # docker's names: memlock → -1
    mounts: tuple[Mount, ...]
    caches: tuple[Mount, ...]
    env: Mapping[str, str]
    secrets: Mapping[str, str]  # variable → file on the controller; never its content
    displaces: tuple[Displace, ...]
    displace_stop_timeout: float
    stop_timeout: float
    failed_stop_timeout: float
    start_deadline: float
    settle: float
    health_prompt: str
    health_expect: str
    guard: bool
    guard_lease: float
    requires: str
    notes: str
    overlays: tuple[str, ...]
    warnings: tuple[str, ...]
    lines: Mapping[str, int]

    @classmethod
    def load(cls, path: str | Path, overlays: Sequence[str | Path | Overlay] = ()) -> Profile:
        """Reads the files. A bare overlay name is looked up in profiles/overlays.

        Raises ProfileError with every fault of every file, one per line.
        """
        path = Path(path)
        faults: list[str] = []
        loaded: list[Overlay] = []
        for item in overlays:
            try:
                if not isinstance(item, Overlay):
                    item = Overlay.load(overlay.find(item, path))
                loaded.append(item)
            except ProfileError as error:
                faults.append(str(error))
        try:
            profile = cls.parse(dotenv_strict.read_text(path), path, loaded)
        except ProfileError as error:
            faults.append(str(error))
        if faults:
            raise ProfileError("\n".join(faults))
        return profile

    @classmethod
    def parse(cls, text: str, path: str | Path, overlays: Sequence[Overlay] = ()) -> Profile:
        """Pure. Raises ProfileError with every fault found, one per line."""
        path = Path(path)
        fields = Fields(dotenv_strict.parse(text, str(path)), KEYS, PREFIXES)
        image = _image(fields)
        hardware = fields.take("HARDWARE", values.label("kind of hardware"))
        command = fields.take("COMMAND", values.command)
        for flag in engine_flags.repeated(command):
            fields.fault("COMMAND", f"COMMAND gives {flag} more than once; keep one of them")
        argv, env, overlay_faults = overlay.applied(
            command, fields.environment(), hardware, overlays
        )
        profile = cls(
            path=path,
            name=path.stem,
            service=fields.take("SERVICE", values.label("service name")),
            engine=fields.take("ENGINE", values.one_of("sglang", "vllm")),
            hardware=hardware,
            image_repository=image.repository,
            image_tag=image.tag,
            pin=image.pin,
            mirrored_from=None,
            argv=argv,
            port=_port(fields, argv),
            model_path=_model_path(fields, argv),
            gpus=fields.take("GPUS", values.gpus),
            network=fields.take("NETWORK", values.one_of("host", "bridge")),
            ipc=fields.take("IPC", values.one_of("private", "host")),
            shm_size=fields.take("SHM_SIZE", values.size),
            init=fields.take("INIT", values.switch("yes", "no")),
            restart_policy=fields.take("RESTART_POLICY", values.restart_policy),
            log_max_size=fields.take("LOG_MAX_SIZE", values.size),
            log_max_file=fields.take("LOG_MAX_FILE", values.whole(1, 1000)),
            ulimits=_ulimits(fields),
            mounts=_mounts(fields, "MOUNT_", values.mount),
            caches=_mounts(fields, "CACHE_", values.cache),
            env=env,
            secrets=fields.named("SECRET_", values.secret_file, ENV_NAME),
            displaces=fields.take("DISPLACES", values.displaces),
            displace_stop_timeout=fields.take("DISPLACE_STOP_TIMEOUT", values.duration(1)),
            stop_timeout=fields.take("STOP_TIMEOUT", values.duration(1)),
            failed_stop_timeout=fields.take("FAILED_STOP_TIMEOUT", values.duration(1)),
            start_deadline=fields.take("START_DEADLINE", values.duration(1)),
            settle=fields.take("SETTLE", values.duration()),
            health_prompt=fields.take("HEALTH_PROMPT", str),
            health_expect=fields.take("HEALTH_EXPECT", str),
            guard=fields.take("GUARD", values.switch("on", "off")),
            guard_lease=fields.take("GUARD_LEASE", values.duration(LEAST_LEASE)),
            requires=fields.take("REQUIRES", str),
            notes=fields.take("NOTES", str),
            overlays=tuple(item.name for item in overlays),
            warnings=(),
            lines=fields.lines,
        )
        fields.dollars()
        _check_together(profile, fields)
        faults = [*fields.faults, *overlay_faults]
        if faults:
            order = sorted(faults, key=lambda fault: (fault.path != str(path), fault.line))
            raise ProfileError("\n".join(map(str, order)))
        warnings = [*fields.warnings, *(w for item in overlays for w in item.warnings)]
        return dataclasses.replace(profile, warnings=tuple(warnings))

    @property
    def image(self) -> ImageRef:
        """What is asked for, mirror and pin included."""
        return ImageRef(self.image_repository, self.image_tag, self.pin)

    @property
    def own_image(self) -> ImageRef:
        """What the profile itself names, whatever mirror the inventory maps it to."""
        return ImageRef.parse(self.mirrored_from) if self.mirrored_from else self.image

    def gpu_indexes(self) -> tuple[int, ...] | None:
        """The indexes asked for: empty for none, None for all."""
        if self.gpus == "all":
            return None
        return () if self.gpus == "none" else tuple(map(int, self.gpus.split(",")))

    def engine_flags(self) -> Mapping[str, tuple[str, ...]]:
        """Flags as written → their values; a switch has none."""
        return engine_flags.flags(self.argv)

    def flag(self, name: str) -> str | None:
        """The value of a flag under any of its spellings; None when absent or a switch."""
        return engine_flags.value(self.argv, name)

    def flag_number(self, name: str) -> float | None:
        """The same, when it is a number; else None."""
        try:
            return float(self.flag(name) or "")
        except ValueError:
            return None


def _image(fields: Fields) -> ImageRef:
    image = fields.take("IMAGE", ImageRef.parse)
    pin = fields.take("PIN", values.optional(image_ref.digest))
    if fields.given("IMAGE") and fields.given("PIN") and image.pin not in (None, pin):
        fields.fault("PIN", f"PIN is {pin}, IMAGE holds {image.pin}; remove one of them")
    pin = image.pin or pin
    tag = image.tag or (None if pin else "latest")
    if tag != image.tag:
        fields.warn("IMAGE", f"IMAGE={image} names no tag, which Docker reads as :latest")
    return ImageRef(image.repository, tag, pin)


def _port(fields: Fields, argv: tuple[str, ...]) -> int:
    given = fields.take("PORT", values.optional_port)
    written = engine_flags.value(argv, "--port")
    if not fields.given("COMMAND") or ("PORT" in fields.lines and given is None):
        return given or 1
    if written is None:
        if given is None:
            fields.fault("PORT", "PORT is missing and COMMAND has no --port; add PORT=30000")
        return given or 1
    try:
        port = values.whole(1, 65535)(written)
    except ValueError as error:
        fields.fault("COMMAND", f"COMMAND: --port {error}")
        return 1
    if fields.given("PORT") and given != port:
        fields.fault("PORT", f"PORT is {given}, COMMAND has --port {port}; make them agree")
    return port


def _model_path(fields: Fields, argv: tuple[str, ...]) -> str:
    given = fields.take("MODEL_PATH", values.model_path)
    written = engine_flags.value(argv, "--model-path")
    if not fields.given("COMMAND"):
        return given or ""
    if written is None:
        if given is None:
            fields.fault(
                "MODEL_PATH",
                "MODEL_PATH is missing and COMMAND has no --model-path; add MODEL_PATH=…",
            )
        return given or ""
    try:
        plain = values.model_path(written)
    except ValueError as error:
        fields.fault("COMMAND", f"COMMAND: --model-path {error}")
        return ""
    if fields.given("MODEL_PATH") and given != plain:
        fields.fault("MODEL_PATH", f"MODEL_PATH is {given}, COMMAND has {written}; make them agree")
    return written  # the engine reports the path as written, and so do we


def _ulimits(fields: Fields) -> dict[str, str]:
    found: dict[str, str] = {}
    for label, limit in fields.named("ULIMIT_", values.ulimit).items():
        try:
            found[values.ulimit_name(label)] = limit
        except ValueError as error:
            fields.fault(f"ULIMIT_{label}", f"ULIMIT_{label}: {error}")
    return found


def _mounts(fields: Fields, prefix: str, read: Callable[[str], Mount]) -> tuple[Mount, ...]:
    found = fields.named(prefix, read)
    return tuple(dataclasses.replace(mount, name=label) for label, mount in found.items())


def _check_together(profile: Profile, fields: Fields) -> None:
    """Faults and warnings that no single value shows."""
    mounted: dict[str, str] = {}
    for prefix, mounts in (("MOUNT_", profile.mounts), ("CACHE_", profile.caches)):
        for mount in mounts:
            key, where = prefix + mount.name, mount.container
            if where in mounted:
                fields.fault(key, f"{key} mounts {where} like {mounted[where]}; keep one of them")
            mounted.setdefault(where, key)
    model = values.model_path(profile.model_path)
    if model and model.startswith("/") and fields.given("COMMAND"):
        key = "MODEL_PATH" if "MODEL_PATH" in fields.lines else "COMMAND"
        if not any(model == where or model.startswith(where + "/") for where in mounted):
            # An engine takes a path that is not there for a Hugging Face id.
            fields.fault(
                key,
                f"the model {model} is in no mount; add MOUNT_MODELS=HOST_DIRECTORY:{model}:ro",
            )
    for name in sorted(set(profile.env) & set(profile.secrets)):
        fields.fault(f"SECRET_{name}", f"{name} is both ENV_ and SECRET_; keep one of them")
    if profile.flag("--api-key") is not None:
        fields.warn("COMMAND", "COMMAND holds --api-key: plan, note and journal will show the key")
    if profile.ipc == "host" and "SHM_SIZE" in fields.lines:
        fields.warn("SHM_SIZE", "SHM_SIZE has no effect with IPC=host")
    ranks = (profile.flag_number("--tp-size") or 1) * (profile.flag_number("--pp-size") or 1)
    if ranks > 1 and profile.ipc == "private" and values.size_bytes(profile.shm_size) < 8 * 1024**3:
        fields.warn("SHM_SIZE", f"SHM_SIZE={profile.shm_size}: NCCL between ranks wants 8g or more")
    if profile.restart_policy.startswith("on-failure") and not profile.init:
        fields.warn(
            "RESTART_POLICY",
            "on-failure without INIT=yes: a crashed SGLang exits 0 and is not restarted",
        )
