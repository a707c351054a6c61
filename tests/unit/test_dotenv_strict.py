"""The dialect: what is read, what is refused, and with which words."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from dotenv.parser import parse_stream
from hypothesis import given
from hypothesis import strategies as st

from rollpin import dotenv_strict
from rollpin.errors import ProfileError


def entries(text: str) -> dict[str, str]:
    document = dotenv_strict.parse(text, "x.env")
    assert document.faults == ()
    return {key: entry.value for key, entry in document.entries.items()}


def faults(text: str) -> list[str]:
    return [str(fault) for fault in dotenv_strict.parse(text, "x.env").faults]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=x", "x"),
        ("A=x\r\n", "x"),
        ("\ufeffA=x\n", "x"),
        ("A = x y ", "x y"),
        ("A='x # y' # why", "x # y"),
        ('A="x" # why', "x"),
        ("A=x#y", "x#y"),
        (r"A='it\'s'", "it's"),
        (r'A="say \"hi\""', 'say "hi"'),
        ('A=\'{"k":"v"}\'', '{"k":"v"}'),  # docker/compose#12174
        ('A="12345"', "12345"),  # docker/cli#4665
        ("A='a$b'", "a$b"),  # elasticsearch PR#108154: no interpolation
        ("A=${HOME}", "${HOME}"),
        ("A=--o '{\"index_topk_freq\": 4}'", "--o '{\"index_topk_freq\": 4}'"),
        ("A=", ""),
        ("A=日本", "日本"),
    ],
)
def test_read_as_python_dotenv_reads_it(text: str, value: str) -> None:
    assert entries(text) == {"A": value}
    (binding,) = [b for b in parse_stream(io.StringIO(text)) if b.key]
    assert binding.value == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A=1\nB\n", "x.env:2: B has no value; write B=value"),
        ("A=1\n\n\nA=2", "x.env:4: A is given again (first on line 1); keep one of them"),
        ("export A=1", "x.env:1: 'export A=1' starts with export; drop it"),
        ("'A'=1", "x.env:1: \"'A'=1\" has a quoted key"),
        ("A=1 # why", "x.env:1: A: inline comment after an unquoted value; put the comment"),
        ("A= # why", "x.env:1: A: inline comment after an unquoted value; put the comment"),
        ("A='x' y", "x.env:1: \"A='x' y\": the quotes do not close, or text follows them"),
        ('A="x\nB=1', "x.env:1: 'A=\"x': the quotes do not close"),
        ("A=python3 \\\n  --tp 2", "x.env:2: '--tp 2' is no KEY=value; a value ends with its line"),
        ("A=python3 \\", "x.env:1: A ends with a backslash"),
        ("A: 1", "x.env:1: 'A: 1' is no KEY=value; write KEY=value"),
        ('A="[config 1]\nx"', "x.env:1: A spans several lines"),  # moby#12997
        (r'A="a\nb"', "x.env:1: A spans several lines"),
        ("A=1\nB=x\0y", "x.env:2: control character 0x00; remove it"),
        ("# a\nA=1\rB=2", "x.env:2: control character 0x0d; remove it"),
        ("A=x\u00a0y", "x.env:1: A holds U+00A0 NO-BREAK SPACE"),
        ("A=x\u200by", "x.env:1: A holds U+200B ZERO WIDTH SPACE"),
    ],
)
def test_refused_with_line_and_advice(text: str, said: str) -> None:
    found = faults(text)
    assert any(fault.startswith(said) for fault in found), found


def test_lines_are_right_after_faults_in_a_crlf_file() -> None:
    assert [fault.split(":")[1] for fault in faults("?? ?\r\n\r\n# c\r\nB\r\nC=1\r\nD\r\n")] == [
        "1",
        "4",
        "6",
    ]


def test_nearest() -> None:
    assert dotenv_strict.nearest("servce", ["SERVICE", "IMAGE"]) == " (nearest known key: SERVICE)"
    assert dotenv_strict.nearest("XYZZY", ["SERVICE", "IMAGE"]) == ""


def test_unreadable_files(tmp_path: Path) -> None:
    latin = tmp_path / "latin.env"
    latin.write_bytes(b"A=1\nB=caf\xe9\n")
    with pytest.raises(ProfileError, match=r"latin\.env:2: byte 0xe9 is not UTF-8; save"):
        dotenv_strict.read_text(latin)
    with pytest.raises(ProfileError, match=r"none\.env:1: the file cannot be read \(No such file"):
        dotenv_strict.read_text(tmp_path / "none.env")
    with pytest.raises(ProfileError, match=r"cannot be read \(Is a directory\)"):
        dotenv_strict.read_text(tmp_path)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    document = dotenv_strict.parse(text, "x.env")
    assert all(fault.line >= 1 and "; " in fault.text for fault in document.faults)
    for entry in document.entries.values():
        assert document.faults or "\n" not in entry.value


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S"])))
def test_a_single_quoted_value_survives(value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    assert entries(f"A='{escaped}'") == {"A": value}
