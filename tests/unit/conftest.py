"""`pytest --update-golden` writes the golden files anew; read the difference before a commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
OPTION = "--update-golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="write the golden files of tests/unit anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, dict[str, str]], None]:
    """Compares a case's texts with its golden files: the same files, the same whole texts."""

    def compare(case: str, texts: dict[str, str]) -> None:
        folder = GOLDEN / case
        if request.config.getoption(OPTION):
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.iterdir():
                old.unlink()
            for name, text in texts.items():
                (folder / name).write_text(text, encoding="utf-8")
        kept = {p.name: p.read_text(encoding="utf-8") for p in folder.glob("*")}
        assert sorted(kept) == sorted(texts), f"run: pytest {OPTION}, and read the difference"
        for name, text in texts.items():
            assert text == kept[name], f"{case}/{name} differs; meant? pytest {OPTION}"

    return compare
