"""What a verdict says of an engine that ended, and what of it may be kept on the host."""

from __future__ import annotations

from rollpin.health import StartFailed


def test_what_the_engine_logged_is_told_apart() -> None:
    failed = StartFailed("the container is exited, exit status 1", "api_key='k1' is not valid")
    assert (
        str(failed) == "the container is exited, exit status 1; its log: api_key='k1' is not valid"
    )
    assert failed.ours == "the container is exited, exit status 1"
    silent = StartFailed("the container is gone")
    assert (str(silent), silent.ours) == ("the container is gone", "the container is gone")
