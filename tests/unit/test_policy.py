"""What an inventory, and a single run, may change about a profile; every change is said."""

from __future__ import annotations

import re

import pytest

from rollpin.errors import ProfileError
from rollpin.policy import adjusted, lease_of_run, lease_seconds
from rollpin.profile import Profile
from rollpin.profile_values import Displace

from .test_profile import DELIVERED, DIGEST, OTHER, parse


def test_nothing_said_nothing_changed() -> None:
    recipe = Profile.load(DELIVERED)
    assert adjusted(recipe, {"ssh_user": "root", "rollpin_user": "x"}) == (recipe, ())


def test_lab_data_is_applied_and_said() -> None:
    lab, notes = adjusted(
        Profile.load(DELIVERED),
        {
            "rollpin_idle": "2s",
            "rollpin_settle": 3,
            "rollpin_start_deadline": "1h",
            "rollpin_lease": "2m",
            "rollpin_env": {"LAB_FAULT": "hang", "N": 1},
            "rollpin_mirrors": {
                "docker.io/lmsysorg/sglang": {
                    "repository": "10.0.0.1:5000/lmsysorg/sglang",
                    "pins": {"latest": DIGEST},
                },
                "other/image": {"repository": "10.0.0.1:5000/other"},
            },
        },
    )
    assert lab.displaces == (Displace("glm53-pp4"), Displace("dsv4_scan", 2.0))
    assert (lab.settle, lab.start_deadline, lab.guard_lease) == (3, 3600, 120)
    assert lab.env == {"SGLANG_CACHE_DIR": "/root/.cache/sglang", "LAB_FAULT": "hang", "N": "1"}
    assert str(lab.image) == f"10.0.0.1:5000/lmsysorg/sglang:latest@{DIGEST}"
    assert lab.mirrored_from == str(Profile.load(DELIVERED).image)
    assert lab.own_image == Profile.load(DELIVERED).image
    assert notes == (
        "idle condition of dsv4_scan shortened from 45 min to 2 s by inventory data rollpin_idle",
        "settling time shortened from 1 min to 3 s by inventory data rollpin_settle",
        "start-up deadline lengthened from 45 min to 1 h by inventory data rollpin_start_deadline",
        "environment variable LAB_FAULT set to 'hang' by inventory data rollpin_env",
        "environment variable N set to '1' by inventory data rollpin_env",
        "image lmsysorg/sglang:latest mapped to 10.0.0.1:5000/lmsysorg/sglang:latest"
        " (pin sha256:d6e7288627be replaced with sha256:aaaaaaaaaaaa)"
        " by inventory data rollpin_mirrors",
    )


def test_a_mirror_without_a_pin_for_the_tag_keeps_the_pin() -> None:
    data = {
        "rollpin_mirrors": {"lmsysorg/sglang": {"repository": "h:5000/s", "pins": {"x": OTHER}}}
    }
    pinned, notes = adjusted(parse(PIN=DIGEST), data)
    assert pinned.pin == DIGEST
    assert "the pin of the profile stays" in notes[0]
    bare, notes = adjusted(parse(), data)
    assert bare.pin is None
    given_one, notes = adjusted(parse(IMAGE="lmsysorg/sglang:x"), data)
    assert given_one.pin == OTHER
    assert "pin given" in notes[0]
    assert adjusted(pinned, data) == (pinned, ())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"rollpin_idel": "2s"}, "rollpin_idel: this name is not known; did you mean rollpin_idle"),
        ({"rollpin_mirror": {}}, "did you mean rollpin_mirrors"),
        ({"rollpin_idle": "2"}, "rollpin_idle: '2' is not a duration"),
        ({"rollpin_idle": True}, "rollpin_idle: True is not a duration"),
        ({"rollpin_settle": float("nan")}, "rollpin_settle: nan is not a duration"),
        ({"rollpin_lease": 1}, "rollpin_lease: 1 is too short; write at least 2 s"),
        ({"rollpin_env": ["A=1"]}, "rollpin_env: it is ['A=1']; write a dictionary"),
        ({"rollpin_env": {"A": True}}, "rollpin_env: A is True; write text in quotes"),
        ({"rollpin_env": {"A-B": "1"}}, "'A-B' is not the name of a variable"),
        ({"rollpin_mirrors": {"a": {"pin": {}}}}, "a has 'pin'; only repository and pins"),
        ({"rollpin_mirrors": {"a": {}}}, "a: 'None' is not a repository"),
        (
            {"rollpin_mirrors": {"a": {"repository": "b", "pins": {"t": "x"}}}},
            "a:t: 'x' is not a digest",
        ),
    ],
)
def test_faulty_inventory_data(data: dict[str, object], said: str) -> None:
    with pytest.raises(ProfileError, match=re.escape(said)):
        adjusted(parse(), data)


def test_other_rooms_may_have_host_data() -> None:
    with pytest.raises(ProfileError):
        adjusted(parse(), {"rollpin_leases": 1})
    assert adjusted(parse(), {"rollpin_leases": 1}, also_known=["rollpin_leases"]) == (parse(), ())


@pytest.mark.parametrize(
    ("lease", "told"),
    [
        (1, "--data lease: 1 is too short; write at least 2 s"),
        ("soon", "--data lease: 'soon' is not a duration; write a number with a unit: 90s"),
    ],
)
def test_the_lease_of_a_run_is_told_as_it_was_typed(lease: object, told: str) -> None:
    with pytest.raises(ProfileError, match=re.escape(told)):
        lease_of_run(parse(), lease)


@pytest.mark.parametrize("lease", [30, "30s"])
def test_the_lease_of_a_run_is_a_number_or_a_duration(lease: object) -> None:
    assert lease_of_run(parse(), lease)[0].guard_lease == 30
    assert lease_seconds(lease) == 30
