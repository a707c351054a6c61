"""Profiles, overlays and what an inventory may change; the delivered recipes word for word."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollpin import overlay, policy, profile
from rollpin.errors import ProfileError
from rollpin.image_ref import ImageRef
from rollpin.overlay import Overlay
from rollpin.profile import Profile
from rollpin.profile_values import Displace, Mount

ROOT = Path(__file__).parents[2]
PRO6000 = ROOT / "profiles" / "pro6000"
DELIVERED = PRO6000 / "glm53_nvfp4_pro6000_sglang_tp2pp4_latest_autotune.env"
NIGHTLY = PRO6000 / "glm53_nvfp4_pro6000_sglang_tp2pp4_nightly.env"
DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64

# Section three of the report, as it stands there.
REPORT = r"""python3 -m sglang.launch_server --model-path /data/hf_models/GLM-5.3-NVFP4 \
  --tp-size 2 --pp-size 4 --mem-fraction-static 0.85 --max-running-requests 48 \
  --disable-radix-cache --disable-shared-experts-fusion \
  --moe-runner-backend flashinfer_cutlass \
  --disable-custom-all-reduce --chunked-prefill-size 16384 \
  --host 0.0.0.0 --port 30000 --json-model-override-args '{"index_topk_freq": 4}'"""

SMALL = {
    "SERVICE": "glm53",
    "ENGINE": "sglang",
    "HARDWARE": "pro6000",
    "IMAGE": "lmsysorg/sglang:latest",
    "COMMAND": "python3 -m sglang.launch_server --model-path org/model --port 30000",
}


def parse(*overlays: Overlay, **keys: str | None) -> Profile:
    merged = {**SMALL, **keys}
    text = "\n".join(f"{key}={value}" for key, value in merged.items() if value is not None)
    return Profile.parse(text, "x.env", overlays)


def faults(*overlays: Overlay, **keys: str | None) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        parse(*overlays, **keys)
    return str(caught.value).split("\n")


# The recipes


def test_delivered_recipe_is_the_reports() -> None:
    recipe = Profile.load(DELIVERED)
    assert recipe.argv == tuple(shlex.split(REPORT.replace("\\\n", " ")))
    assert recipe.argv[-2:] == ("--json-model-override-args", '{"index_topk_freq": 4}')
    assert str(recipe.image) == (
        "lmsysorg/sglang:latest"
        "@sha256:d6e7288627be8b02be88e4bba38e73f6d50e2826869f753c13a4c4385ab3eda9"
    )
    assert {cache.host + ":" + cache.container for cache in recipe.caches} == {
        "/data/glm53_exp/fi_jit_cache:/root/.cache/flashinfer",
        "/data/glm53_exp/sglang_cache:/root/.cache/sglang",
    }
    assert recipe.mounts == (Mount("MODELS", "/data/hf_models", "/data/hf_models", "ro"),)
    assert recipe.env == {"SGLANG_CACHE_DIR": "/root/.cache/sglang"}
    assert recipe.displaces == (Displace("glm53-pp4"), Displace("dsv4_scan", 45 * 60.0))
    assert (recipe.service, recipe.port, recipe.gpus) == ("glm53", 30000, "all")
    assert recipe.name == DELIVERED.stem
    assert recipe.warnings == ()


def test_nightly_differs_only_in_image_autotune_and_caches() -> None:
    today, delivered = Profile.load(NIGHTLY), Profile.load(DELIVERED)
    assert str(today.image) == "lmsysorg/sglang:nightly-dev-20260828"
    assert set(today.argv) - set(delivered.argv) == {"--disable-flashinfer-autotune"}
    assert [word for word in today.argv if word != "--disable-flashinfer-autotune"] == list(
        delivered.argv
    )
    assert (today.caches, today.env, today.mounts) == ((), {}, delivered.mounts)
    assert today.warnings == ()


def test_every_shipped_profile_and_overlay_loads() -> None:
    paths = sorted((ROOT / "profiles").rglob("*.env"))
    assert len(paths) >= 3
    for path in paths:
        if path.parent.name == "overlays":
            assert Overlay.load(path).name == path.stem
        else:
            assert Profile.load(path).name == path.stem


def test_flags_are_read_under_every_spelling() -> None:
    recipe = Profile.load(DELIVERED)
    assert recipe.flag("--tp") == recipe.flag("--tensor-parallel-size") == "2"
    assert recipe.flag_number("--mem-fraction-static") == 0.85
    assert recipe.flag_number("--moe-runner-backend") is None
    assert recipe.flag("--nothing") is None
    assert recipe.engine_flags()["--disable-radix-cache"] == ()
    assert "-m" not in recipe.engine_flags()
    command = "vllm serve org/model --port=8000 --cuda-graph-bs 1 2 -1 --x -tp 4"
    assert parse(COMMAND=command, MODEL_PATH="org/model").engine_flags() == {
        "--port": ("8000",),
        "--cuda-graph-bs": ("1", "2", "-1"),
        "--x": (),
        "-tp": ("4",),
    }


# Keys


def test_every_key_is_documented() -> None:
    text = (ROOT / "docs" / "profile.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE))
    prefixed = {f"{prefix}NAME" for prefix in (*profile.PREFIXES, *overlay.PREFIXES)}
    assert documented == {*profile.KEYS, *overlay.KEYS, *prefixed, *policy.HOST_DATA}


def test_documented_defaults_are_the_real_ones() -> None:
    text = (ROOT / "docs" / "profile.md").read_text(encoding="utf-8")
    for name, key in profile.KEYS.items():
        if key.default:
            assert f"| `{name}` | `{key.default}` |" in text
        elif key.default is None:
            assert f"| `{name}` | required |" in text


def test_examples_in_faults_are_valid() -> None:
    examples = {name: key.example for name, key in profile.KEYS.items()}
    assert parse(**examples).guard_lease == 120


def test_defaults() -> None:
    small = parse()
    assert small.shm_size == "32g"
    assert small.restart_policy == "unless-stopped"
    assert (small.displace_stop_timeout, small.failed_stop_timeout) == (120, 10)
    assert (small.start_deadline, small.settle, small.guard_lease) == (2700, 60, 120)
    assert (small.init, small.guard) == (True, True)
    assert (small.pin, small.mirrored_from) == (None, None)
    assert small.gpu_indexes() is None
    assert small.lines["IMAGE"] == 4


def test_all_faults_at_once_in_the_order_of_the_file() -> None:
    found = faults(SERVICE="Glm 53", ENGINE="trt", COMMAND="x 'y", GPUS="0,0", SETLE="1s")
    assert [fault.split(": ")[0] for fault in found] == [
        "x.env:1",
        "x.env:2",
        "x.env:5",
        "x.env:6",
        "x.env:7",
    ]
    assert found[-1] == (
        "x.env:7: SETLE is not a known key; correct or remove it (nearest known key: SETTLE)"
    )


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("SERVICE", None, "SERVICE is missing; add it, for example SERVICE=glm53"),
        ("PIN", "", "PIN is empty"),
        ("PIN", "sha256:12", "'sha256:12' is not a digest"),
        ("IMAGE", "Bad/Image", "is not a repository"),
        ("IMAGE", "a/b:", "'' is not a tag"),
        ("IMAGE", "a/b@sha256:1", "is not a digest"),
        ("COMMAND", "python3 --port 1 'x", "the quotes do not balance"),
        ("COMMAND", "python3 --port 1 > log", "holds '>', but no shell runs it"),
        ("COMMAND", "A=1 python3 --port 1", "starts with a variable"),
        ("COMMAND", "python3 –port 1", "holds '–'; type plain"),
        ("COMMAND", "x --port 1 --model m --tp 2 --tp-size 4", "gives --tp-size more than once"),
        ("COMMAND", "x --model m", "PORT is missing and COMMAND has no --port"),
        ("COMMAND", "x --port 1", "MODEL_PATH is missing and COMMAND has no --model-path"),
        ("COMMAND", "x --port y --model m", "--port 'y' is no number from 1 to 65535"),
        ("COMMAND", "x --port 1 --model /m/a", "the model /m/a is in no mount"),
        ("COMMAND", "x --port 1 --model /m/../a", "climbs with .."),
        ("PORT", "30001", "PORT is 30001, COMMAND has --port 30000; make them agree"),
        ("MODEL_PATH", "org/other", "MODEL_PATH is org/other, COMMAND has org/model"),
        ("GPUS", "0-3", "names no GPUs"),
        ("NETWORK", "hots", "'hots' is not known; write one of host, bridge (nearest: host)"),
        ("SHM_SIZE", "0g", "is not a size"),
        ("INIT", "true", "write one of yes, no"),
        ("RESTART_POLICY", "on-failure:0", "is not a restart policy"),
        ("LOG_MAX_FILE", "0", "is no number from 1 to 1000"),
        ("ULIMIT_MEMLOK", "-1", "(nearest: memlock)"),
        ("ULIMIT_STACK", "2:1", "soft limit above the hard one"),
        ("MOUNT_A", "x:/y", "'x' is not an absolute path"),
        ("MOUNT_A", "/x:/y:rx", "write one of ro, rw"),
        ("MOUNT_A", "/x:/", "the root directory cannot stand here"),
        ("MOUNT_", "/x:/y", "'' is not a name; write MOUNT_NAME=value"),
        ("MOUNTS_A", "/x:/y", "(nearest known key: MOUNT_A)"),
        ("CACHE_A", "/x:/y:rw", "is not a cache"),
        ("ENV_1A", "x", "'1A' is not a name"),
        ("ENV_A", "fo o", "has blanks; put quotes around"),  # docker/compose#5494
        ("SECRET_A", "token.txt", "is not a file"),
        ("DISPLACES", "a-b:idle", "is not a condition; write a-b:idle=45m"),
        ("DISPLACES", "a-b:idle=45", "'45' is not a duration"),
        ("DISPLACES", "ab ab", "ab is named twice"),
        ("SETTLE", "60", "write a number with a unit"),
        ("SETTLE", "1m2h", "the largest first"),
        ("GUARD_LEASE", "1s", "1s is too short; write at least 2 s"),
    ],
)
def test_faults_say_what_was_found_and_what_to_do(key: str, value: str | None, said: str) -> None:
    found = faults(**{key: value})
    assert len(found) == 1, found
    assert said in found[0]
    assert re.match(r"x\.env:\d+: .+; .+", found[0])


def test_two_keys_that_contradict() -> None:
    assert "PIN is" in faults(IMAGE=f"a/b@{DIGEST}", PIN=OTHER)[0]
    assert "A is both ENV_ and SECRET_" in faults(ENV_A="1", SECRET_A="/x")[0]
    assert "CACHE_B mounts /y like MOUNT_A" in faults(MOUNT_A="/x:/y/", CACHE_B="/z:/y")[0]


def test_a_digest_in_the_image_is_the_pin() -> None:
    assert parse(IMAGE=f"a/b@{DIGEST}").image == ImageRef("a/b", None, DIGEST)
    assert parse(IMAGE=f"h:5000/a/b:t@{DIGEST}", PIN=DIGEST).image == ImageRef(
        "h:5000/a/b", "t", DIGEST
    )


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("ENV_A", "a$b", "ENV_A holds a $, which is kept as it is"),
        ("ENV_A", "'12345'", "ENV_A is read as '12345'; the quotes are not part"),
        ("ENV_HF_TOKEN", "x", "use SECRET_HF_TOKEN=FILE"),
        ("IMAGE", "a/b", "names no tag, which Docker reads as :latest"),
        ("COMMAND", SMALL["COMMAND"] + " --api-key x", "will show the key"),
    ],
)
def test_warnings(key: str, value: str, said: str) -> None:
    (warning,) = parse(**{key: value}).warnings
    assert said in warning
    assert warning.startswith("x.env:")


def test_warnings_about_settings_that_do_not_go_together() -> None:
    (warning,) = parse(IPC="host", SHM_SIZE="32g").warnings
    assert "no effect with IPC=host" in warning
    (warning,) = parse(COMMAND=SMALL["COMMAND"] + " --tp 2", SHM_SIZE="64m").warnings
    assert "NCCL" in warning
    (warning,) = parse(INIT="no", RESTART_POLICY="on-failure").warnings
    assert "exits 0" in warning


PRINTABLE = st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126))


@given(st.lists(PRINTABLE.map("={}".format), max_size=4))
def test_quoting_arrives_exactly(words: list[str]) -> None:
    argv = ("engine", "--port", "1", "--model", "m", "--last", *words)
    command = shlex.join(argv)
    quoted = command.replace("\\", "\\\\").replace("'", "\\'")
    assert parse(COMMAND=f"'{quoted}'").argv == argv
    if not re.search(r"\s#", command):
        assert parse(COMMAND=command).argv == argv


# Overlays


def make_overlay(**keys: str) -> Overlay:
    keys = {"OVERLAY": "o", "HARDWARE": "pro6000 b200", "REASON": "a test", **keys}
    return Overlay.parse("\n".join(f"{k}={v}" for k, v in keys.items()), Path("o.env"))


def test_example_overlay() -> None:
    recipe = Profile.load(DELIVERED, ["glm_parsers"])
    added = ("--tool-call-parser", "glm47", "--reasoning-parser", "glm45")
    assert recipe.argv == (*Profile.load(DELIVERED).argv, *added)
    assert recipe.overlays == ("glm_parsers",)
    by_path = Profile.load(DELIVERED, [ROOT / "profiles" / "overlays" / "glm_parsers.env"])
    assert by_path.argv == recipe.argv


def test_overlay_strips_then_adds_and_sets() -> None:
    change = make_overlay(STRIP_FLAGS="--tp-size --gone", ADD_FLAGS="--tp 4", ENV_A="2")
    command = "engine --port 1 --tensor-parallel-size 2 --model m"
    changed = parse(change, COMMAND=command, ENV_A="1")
    assert changed.argv == ("engine", "--port", "1", "--model", "m", "--tp", "4")
    assert changed.env == {"A": "2"}


def test_overlay_faults() -> None:
    twice = faults(make_overlay(ADD_FLAGS="--port 2"))
    assert twice == [
        "o.env:4: overlay o gives --port a second time; add STRIP_FLAGS=--port to replace it"
    ]
    assert "valid on pro6000, b200" in faults(make_overlay(ENV_A="1"), HARDWARE="h200")[0]
    assert "sets A differently" in faults(make_overlay(ENV_A="1"), make_overlay(ENV_A="2"))[0]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "the overlay changes nothing"),
        ({"OVERLAY": "other", "ENV_A": "1"}, "name the file other.env"),
        ({"ADD_FLAGS": "x --a"}, "starts with 'x'; start with a flag"),
        ({"STRIP_FLAGS": "--a=1"}, "is not a flag's name"),
        ({"ADD_FLAG": "--a"}, "(nearest known key: ADD_FLAGS)"),
    ],
)
def test_an_overlay_is_read_as_strictly(keys: dict[str, str], said: str) -> None:
    with pytest.raises(ProfileError, match=re.escape(said)):
        make_overlay(**keys)


def test_faults_of_profile_and_overlays_come_together(tmp_path: Path) -> None:
    bad = tmp_path / "bad.env"
    bad.write_text("SERVICE=x\n")
    with pytest.raises(ProfileError, match=r"(?s)missing\.env:1: the file cannot.*bad\.env:1: "):
        Profile.load(bad, [tmp_path / "missing.env"])
