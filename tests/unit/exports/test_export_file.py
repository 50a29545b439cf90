"""An export file: whole or not there, and every damage is named without its content."""

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from eden_memory.errors import Conflict, Invalid, NotFound
from eden_memory.files import file_items
from eden_memory.files.export_file import (
    BadLine,
    GapLine,
    RecordLine,
    Selection,
    header_of,
    read_lines,
    without_data,
    writing,
)
from eden_memory.schemas.envelope import STORE_FORMAT
from eden_memory.schemas.exported import ExportHeader
from eden_memory.schemas.scopes import Scope
from tests.unit.memory.memory_histories import NOON, blob, delivered, fact, reflection

HEADER = ExportHeader(store_format=STORE_FORMAT, export_id="0" * 32, exported_at=NOON, program="0.1.0")
RECORDS = [delivered(event) for event in (reflection("r"), blob(1, ["r"]), fact("a", 2), fact("a"))]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "memory.jsonl"
    with writing(path) as writer:
        writer.header(HEADER)
        for record in RECORDS:
            assert record.event is not None
            writer.record(without_data(record.envelope, record.key), record.event.json_bytes())
        writer.gap("agent:s.helper", 3)
        writer.end()
    return path


def test_what_is_read_is_what_was_written(file: Path) -> None:
    assert header_of(file) == HEADER
    *records, gap = read_lines(file)
    assert gap == GapLine(6, "agent:s.helper", 3)
    assert all(isinstance(line, RecordLine) for line in records)
    read = [line for line in records if isinstance(line, RecordLine)]
    assert [line.event for line in read] == [record.event for record in RECORDS]
    assert [line.value for line in read] == [record.event and record.event.json_bytes() for record in RECORDS]
    assert [line.envelope for line in read] == [record.envelope for record in RECORDS]


def test_a_file_that_is_there_is_not_written_over_and_a_broken_one_is_not_left(
    file: Path, tmp_path: Path
) -> None:
    with pytest.raises(Conflict, match="exists"), writing(file):
        pass
    with pytest.raises(ZeroDivisionError), writing(tmp_path / "broken.jsonl"):
        _ = 1 / 0
    with pytest.raises(NotFound, match="no folder"), writing(tmp_path / "no" / "folder.jsonl"):
        pass
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("linked", [False, True])
def test_what_lies_where_a_file_is_begun_is_neither_written_to_nor_read_by_others(
    tmp_path: Path, linked: bool
) -> None:
    path, other = tmp_path / "memory.jsonl", tmp_path / "other"
    other.write_text("mine")
    other.chmod(0o666)
    begun = tmp_path / "memory.jsonl.partial"
    begun.symlink_to(other) if linked else begun.hardlink_to(other)
    with writing(path) as writer:
        writer.header(HEADER)
    assert other.read_text() == "mine"
    assert path.stat().st_mode & 0o077 == 0


Lines = list[bytes]
Change = Callable[[Lines], Lines]


def without(number: int) -> Change:
    """All lines but one of them."""
    return lambda lines: [*lines[: number - 1], *lines[number:]]


def instead(number: int, line: bytes) -> Change:
    """The lines with another one in the place of one of them."""
    return lambda lines: [*lines[: number - 1], line, *lines[number:]]


def torn(lines: Lines) -> Lines:
    """The file as a stopped copy leaves it."""
    return [*lines[:-2], lines[-2][:40]]


def changed(file: Path, change: Change) -> Path:
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))
    return file


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without(7), "cut off"),
        (torn, "cut off"),
        (without(3), "has 4 lines of memory, and its closing line says 5"),
    ],
)
def test_a_file_that_lacks_something_is_refused(file: Path, change: Change, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        list(read_lines(changed(file, change)))


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"", "is not an export"),
        (b'{"id": "mem0", "memory": "Likes tea"}', "is not an export"),
        (orjson.dumps({**HEADER.model_dump(mode="json"), "version": 2}), "written by a newer program"),
        (
            orjson.dumps({**HEADER.model_dump(mode="json"), "store_format": 0}),
            "written by another version: it is of store format 0",
        ),
    ],
)
def test_a_file_of_another_kind_is_refused(file: Path, first: bytes, said: str) -> None:
    with pytest.raises(Invalid, match=said) as refused:
        header_of(changed(file, instead(1, first + b"\n")))
    assert "tea" not in str(refused.value)
    with pytest.raises(NotFound):
        header_of(file.with_name("nothing"))


def wrong(number: int, **fields: object) -> Change:
    """The lines with other fields in one of them."""

    def change(lines: Lines) -> Lines:
        line = {**orjson.loads(lines[number - 1]), **fields}
        return [*lines[: number - 1], orjson.dumps(line) + b"\n", *lines[number:]]

    return change


@pytest.mark.parametrize(
    ("change", "number", "said"),
    [
        (instead(3, b'{"text": "Likes \xff tea"}\n'), 3, ""),
        (instead(3, b"Likes tea\n"), 3, "json_invalid"),
        (wrong(2, type="eden.ReflectionFormed.v99"), 2, "v99 is not known here"),
        (wrong(2, type="eden.ScopeChanged.v2"), 2, ""),
        (wrong(3, data={"text": "Likes tea"}), 3, "missing"),
        (wrong(4, key="other@2"), 4, "not those of the data"),
        (wrong(4, scope="agent:s.other"), 4, "not those of the data"),
        (wrong(6, version=10**12), 6, "a version above 100,000"),
        (instead(3, b"x" * 20_000 + b"\n"), 3, "it is longer than"),
        (instead(2, HEADER.model_dump_json().encode() + b"\n"), 2, "second header"),
    ],
)
def test_a_bad_line_is_named_by_its_number_and_the_others_are_read(
    file: Path, change: Change, number: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_items, "LONGEST", 8_000)
    read = list(read_lines(changed(file, change)))
    (bad,) = [line for line in read if isinstance(line, BadLine)]
    assert bad.number == number
    assert said in bad.reason
    assert "tea" not in bad.reason
    assert len(read) == 5


@pytest.mark.parametrize(
    ("selected", "bad"),
    [
        ({"agent_id": "s.assistant"}, [6]),
        ({"agent_id": "s.other"}, [2, 3, 4, 5, 6]),
        ({"agent_id": "s.assistant", "user_id": "s.ann"}, [2, 3, 4, 5, 6]),
    ],
)
def test_what_the_header_does_not_announce_is_bad(
    file: Path, selected: dict[str, str], bad: list[int]
) -> None:
    header = HEADER.model_copy(update=selected).model_dump_json().encode() + b"\n"
    read = list(read_lines(changed(file, instead(1, header))))
    named = [line for line in read if isinstance(line, BadLine)]
    assert [line.number for line in named] == bad
    assert {line.reason for line in named} == {"its scope is not of this export"}


def test_a_users_memory_is_their_own_scopes_and_sessions_without_others() -> None:
    agent, ann = "s.helper", "s.ann"
    own = [Scope.of_user(agent, ann), Scope.of_session(agent, "s.1", (ann,))]
    others = [
        Scope.of_user(agent, "s.bob"),
        Scope.of_session(agent, "s.2", (ann, "s.bob")),
        Scope.of_agent(agent),
        Scope.of_session(agent, "s.3", ()),
    ]
    assert all(map(Selection(user=ann).takes, own))
    assert not any(map(Selection(user=ann).takes, others))
    assert all(map(Selection(agent=agent).takes, own + others))
    assert not any(map(Selection(agent="s.other", user=ann).takes, own + others))
