"""Files of other systems, read: whose each item is, when it was said, what is skipped, and under which id it goes."""

import json
import zipfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.directory.participants import own_session, whose
from eden_memory.errors import EdenError, Invalid
from eden_memory.files import chat_items, file_items
from eden_memory.files.chat_items import chatgpt, claude
from eden_memory.files.file_items import elements, markdown, mem0
from eden_memory.files.import_items import Entry, ImportedAs, ImportedItem, ImportMapping, Reader, SkippedItem
from eden_memory.files.mirror_page import BLOB, MirrorLine, MirrorPage, rendered
from eden_memory.schemas.documents import InboxAddedText, InboxFactCommand, InboxFormNow, InboxMemoryCommand
from eden_memory.schemas.ids import encode

NOW = datetime(2026, 6, 1, tzinfo=UTC)
SECRET = "rosebud"
"""In texts that cannot be imported: no report may hold it."""


def to(source: str = "mem0", **mapping: Any) -> ImportedAs:
    return ImportedAs(source, ImportMapping(**mapping), "test", NOW)


async def found(read: Reader, path: Path, given: ImportedAs) -> list[Entry]:
    entries: AsyncIterator[Entry] = read(str(path), given)
    return [entry async for entry in entries]


def lines(folder: Path, *rows: Any) -> Path:
    file = folder / "memories.jsonl"
    file.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return file


def items(entries: list[Entry]) -> list[ImportedItem]:
    return [entry for entry in entries if isinstance(entry, ImportedItem)]


def skipped(entries: list[Entry]) -> list[tuple[str, bool]]:
    return [(entry.where, entry.bad) for entry in entries if isinstance(entry, SkippedItem)]


def fact(item: ImportedItem) -> InboxFactCommand:
    assert isinstance(item.request, InboxFactCommand)
    return item.request


async def test_mem0s_memories_are_facts_of_whom_they_name(tmp_path: Path) -> None:
    file = lines(
        tmp_path,
        {
            "id": "1",
            "memory": "Likes tea",
            "user_id": "alice",
            "agent_id": "bot",
            "created_at": "2025-01-02T03:04:05-07:00",
        },
        {"memory": "Ships on Fridays", "agent_id": "bot", "updated_at": 1_750_000_000, "created_at": 0},
        {"id": "3", "payload": {"data": "Has a cat", "user_id": 5, "hash": "ab"}},
        {"memory": "Has no owner", "metadata": {"user_id": "zoe"}},
    )
    mine = to(agents={"bot": "s.support"}, users={"alice": "s.ada"})
    one, two, three, four = items(await found(mem0, file, mine))
    assert [item.scope.key for item in (one, two, three, four)] == [
        "user:s.support:s.ada",
        "agent:s.support",
        "user:s.default:i.5",
        "user:s.default:s.zoe",
    ]
    assert (fact(one).said_at, fact(two).said_at) == (
        datetime(2025, 1, 2, 10, 4, 5, tzinfo=UTC),
        datetime.fromtimestamp(1_750_000_000, UTC),
    )
    assert (fact(one).by, fact(one).action, fact(one).session_id) == (
        "import",
        "add",
        own_session("s.support", "s.ada"),
    )
    assert fact(two).session_id == own_session("s.support", None)


async def test_mem0s_metadata_does_not_say_whose_a_memory_is_that_says_so_itself(tmp_path: Path) -> None:
    others = {"user_id": "bob", "agent_id": "other", "id": "2", "memory": "Likes rum"}
    own = {"id": "1", "memory": "Likes tea", "user_id": "ada", "agent_id": "bot"}
    talk = {"memory": SECRET, "agent_id": "bot", "run_id": "r"}
    file = lines(tmp_path, {**own, "metadata": others}, {"id": "1", "payload": own, "metadata": others}, talk)
    entries = await found(mem0, file, to(user="s.eve"))
    assert {(item.scope.key, fact(item).text) for item in items(entries)} == {
        ("user:s.bot:s.ada", "Likes tea")
    }
    assert skipped(entries) == [("line 3", False)]


@pytest.mark.parametrize("of_array", [False, True])
async def test_ids_that_are_neither_text_nor_number_skip_their_items(tmp_path: Path, of_array: bool) -> None:
    own = {"memory": SECRET, "user_id": "ada"}
    wrong = [{**own, "id": ["1"]}, {**own, "id": {"a": 1}}, {**own, "user_id": ["ada"]}]
    rows = [json.dumps(row) for row in [*wrong, {"memory": "Fine", "user_id": "ada"}]]
    long = f'{{"memory": "{SECRET}", "user_id": "ada", "created_at": {"9" * 5_000}}}'
    file = tmp_path / "memories.json"
    file.write_text(f"[{','.join([long, *rows])}]" if of_array else "\n".join([long, *rows]))
    entries = await found(mem0, file, to())
    assert len(items(entries)) == 1
    assert [bad for _, bad in skipped(entries)] == [True] * 4
    assert SECRET not in repr([entry for entry in entries if isinstance(entry, SkippedItem)])


async def test_front_matter_of_other_types_skips_its_file(tmp_path: Path) -> None:
    aliases = "\n".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 12))
    heads = {
        "a": f"user_id: ada\nx0: &x0 [a]\n{aliases}\nid: *x11",
        "b": "user_id: ada\nkind: [fact]",
        "c": f"user_id: ada\nid: 0x{'f' * 9_000}",
        "d": "user_id: ada",
    }
    for name, head in heads.items():
        (tmp_path / f"{name}.md").write_text(f"---\n{head}\n---\nLikes tea")
    entries = await found(markdown, tmp_path, to())
    assert [item.where for item in items(entries)] == ["d.md"]
    assert skipped(entries) == [("a.md", True), ("b.md", True), ("c.md", True)]


async def test_a_claude_message_without_text_is_passed_over(tmp_path: Path) -> None:
    said = [{"uuid": str(n), "sender": "human", "text": text} for n, text in enumerate([5, ["x"], "Hello."])]
    file = tmp_path / "conversations.json"
    file.write_text(
        json.dumps([{"uuid": ["c"], "chat_messages": said}, {"uuid": "d", "chat_messages": said}])
    )
    entries = await found(claude, file, to("claude", user="s.ada"))
    assert skipped(entries) == [("item 1", True)]
    texts = [item.request.text for item in items(entries) if isinstance(item.request, InboxAddedText)]
    assert texts[-1] == "Hello."


async def test_what_cannot_be_read_is_named_and_its_content_is_not(tmp_path: Path) -> None:
    file = lines(
        tmp_path,
        {"memory": "Fine", "user_id": "ada"},
        f'{{"memory": "{SECRET}',
        [SECRET],
        {"memory": 5, "user_id": "ada"},
        {"memory": f"{SECRET} " * 500, "user_id": "ada"},
        {"memory": SECRET, "user_id": {"x": SECRET}},
        {"memory": SECRET, "user_id": "ada", "created_at": "2030-01-01"},
        {"memory": SECRET, "user_id": "ada", "created_at": SECRET},
        {"memory": SECRET, "run_id": "r"},
        {"memory": SECRET},
        "",
        {"memory": "Fine, too", "user_id": "ada"},
    )
    entries = await found(mem0, file, to())
    assert [item.where for item in items(entries)] == ["line 1", "line 12"]
    assert skipped(entries) == [(f"line {n}", n < 9) for n in range(2, 11)]
    assert SECRET not in repr([entry for entry in entries if isinstance(entry, SkippedItem)])
    assert "run_id" in next(
        entry.reason for entry in entries if entry.where == "line 9" and isinstance(entry, SkippedItem)
    )


async def test_the_id_follows_from_item_text_and_owner_alone(tmp_path: Path) -> None:
    row = {"id": "8d0c", "memory": "Likes tea", "user_id": "ada"}
    rows = [
        {**row, "created_at": "2025-01-01"},
        {**row, "memory": "Likes coffee"},
        {**row, "user_id": "bob"},
        {**row, "id": "8d0d"},
        {**row, "id": SECRET + " is no id"},
    ]
    entries = items(await found(mem0, lines(tmp_path, row, *rows), to()))
    names = [item.name for item in entries]
    assert names[0] == names[1]
    assert len(set(names)) == len(rows)
    assert "8d0c" in names[0]
    assert SECRET not in names[-1]


@given(
    st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=40), max_size=3), max_size=12),
    st.integers(0, 2),
)
def test_an_array_is_read_element_by_element_however_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], wrapped: int
) -> None:
    file = tmp_path_factory.mktemp("array") / "a.json"
    written = json.dumps(
        {"results": rows} if wrapped else rows, indent=wrapped or None, ensure_ascii=wrapped > 1
    )
    file.write_text(written, errors="replace")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(file_items, "PART", 40)
        read = [element.value for element in elements(file)]
    whole = json.loads(file.read_text())
    assert read == (whole["results"] if wrapped else whole)


async def test_a_broken_array_is_taken_up_to_where_it_breaks(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('[{"memory": "Likes tea", "user_id": "ada"}, {"memory": oops}, {"memory": "x"}]')
    entries = await found(mem0, file, to())
    assert [item.where for item in items(entries)] == ["item 1"]
    assert skipped(entries) == [("item 2", True)]


async def test_markdown_files_say_in_their_front_matter_what_they_are(tmp_path: Path) -> None:
    def put(name: str, head: str, text: str = "Likes tea") -> None:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"---\n{head}\n---\n\n{text}\n")

    put(
        "entries/ada/facts/1.md",
        "id: one\nrole: memory\nconversation_id: ada\ncreated_at: 2025-03-01T10:00:00+00:00",
    )
    put("entries/ada/facts/2.md", "id: two\nkind: reflection\nuser_id: ada\nagent_id: bot")
    put(
        "entries/ada/summaries/s.md",
        "id: sum\nrole: summary\nconversation_id: ada\nsummary_kind: summary",
        "All.",
    )
    put("entries/ada/turns/user/t.md", "id: t\nrole: user\nconversation_id: ada", SECRET)
    put("entries/deleted/ada/facts/3.md", "id: three\nrole: memory\nconversation_id: ada", SECRET)
    put("entries/x.md", "id: [", SECRET)
    (tmp_path / "entries/plain.md").write_text(SECRET)
    (tmp_path / "entries/other.txt").write_text(SECRET)
    (tmp_path / "entries/bytes.md").write_bytes(b"---\n\xff\n---\n")
    entries = await found(markdown, tmp_path, to("markdown"))
    assert [(item.kind, item.scope.key) for item in items(entries)] == [
        ("fact", "user:s.default:s.ada"),
        ("reflection", "user:s.bot:s.ada"),
        ("blob", "user:s.default:s.ada"),
    ]
    assert fact(items(entries)[0]).said_at == datetime(2025, 3, 1, 10, tzinfo=UTC)
    blob = items(entries)[2].request
    assert isinstance(blob, InboxMemoryCommand)
    assert (blob.action, blob.expected_version, blob.text) == ("edit_blob", 0, "All.")
    assert skipped(entries) == [
        ("entries/ada/turns/user/t.md", False),
        ("entries/bytes.md", True),
        ("entries/deleted/ada/facts/3.md", False),
        ("entries/plain.md", False),
        ("entries/x.md", True),
    ]
    assert SECRET not in repr([entry for entry in entries if isinstance(entry, SkippedItem)])


def node(
    name: str, parent: str | None, role: str | None = None, text: str = "", **fields: Any
) -> dict[str, Any]:
    message = (
        None
        if role is None
        else {"id": name, "author": {"role": role}, "content": {"parts": [text]}, **fields}
    )
    return {"id": name, "parent": parent, "message": message}


def conversation(name: str, current: str, *nodes: dict[str, Any]) -> dict[str, Any]:
    return {"conversation_id": name, "current_node": current, "mapping": {one["id"]: one for one in nodes}}


async def test_of_chatgpts_conversations_the_branch_shown_last_is_taken(tmp_path: Path) -> None:
    talk = conversation(
        "c1",
        "e",
        node("root", None),
        node("s", "root", "system", "You are helpful."),
        node("a", "s", "user", "I live in Lyon.", create_time=1_700_000_000.5),
        node("old", "a", "assistant", "Not shown any more."),
        node("b", "a", "assistant", "Nice."),
        node("c", "b", "tool", "tool output"),
        node("d", "c", "user", "hidden", metadata={"is_visually_hidden_from_conversation": True}),
        node("e", "d", "user", "And I have a dog."),
    )
    empty = conversation("c2", "a", node("a", None, "assistant", " "))
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("conversations.json", json.dumps([talk, {"x": 1}, empty]))
    entries = await found(chatgpt, tmp_path / "export.zip", to("chatgpt", user="s.ada", agent="s.bot"))
    *messages, form = [item.request for item in items(entries)]
    assert [(m.role, m.text, m.user_id, m.created_at) for m in messages if isinstance(m, InboxAddedText)] == [
        (role, text, "ada" if role == "user" else None, datetime.fromtimestamp(1_700_000_000.5, UTC))
        for role, text in (("user", "I live in Lyon."), ("assistant", "Nice."), ("user", "And I have a dog."))
    ]
    sessions = {item.order for item in items(entries)}
    assert len(sessions) == 1
    assert whose(encode(sessions.pop())) == ("s.bot", "s.ada", None)
    assert isinstance(form, InboxFormNow)
    assert skipped(entries) == [("item 2", True), ("item 3", False)]


async def test_an_archive_that_is_encrypted_or_far_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "export.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", " " * 100_000)
    packed = file.read_bytes()
    central = packed.index(b"PK\x01\x02")
    file.write_bytes(packed[:6] + b"\x01" + packed[7 : central + 8] + b"\x01" + packed[central + 9 :])
    with pytest.raises(Invalid, match="cannot be read as a ZIP"):
        await found(chatgpt, file, to(user="s.ada"))
    file.write_bytes(packed)
    monkeypatch.setattr(chat_items, "MOST_UNPACKED", 99_999)
    with pytest.raises(Invalid, match="more than 99,999 bytes"):
        await found(chatgpt, file, to(user="s.ada"))


async def test_claudes_conversations_are_messages_in_their_order(tmp_path: Path) -> None:
    said = [
        {"uuid": "1", "sender": "human", "text": "I live in Oslo.", "created_at": "2024-05-05T00:00:00Z"},
        {"uuid": "2", "sender": "assistant", "text": "", "content": [{"type": "text", "text": "Nice."}]},
    ]
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([{"uuid": "c", "name": "x", "chat_messages": said}]))
    entries = items(await found(claude, file, to("claude", user="s.ada")))
    texts = [item.request.text for item in entries if isinstance(item.request, InboxAddedText)]
    assert texts == ["I live in Oslo.", "Nice."]
    with pytest.raises(Invalid, match="--user"):
        await found(claude, file, to("claude"))


async def test_a_mirrors_folder_is_read_line_by_line_into_its_scopes(tmp_path: Path) -> None:
    def write(name: str, scope: str, *lines: MirrorLine) -> None:
        (tmp_path / name).write_text(rendered(MirrorPage(scope, "m0123", lines, pins=("Likes tea.",))))

    blob, reflection = MirrorLine("blob", BLOB, "Likes tea."), MirrorLine("reflection", "r1", "Wants *maps*.")
    facts = [MirrorLine("fact", "f1", "Has a boat."), MirrorLine("fact", None, "Written by hand.")]
    write("user.s.ann.md", "user:s.helper:s.ann", blob, reflection, *facts)
    write("shard.s.boats.md", "shard:s.helper:boats", blob, facts[0])
    write("session.s.x.md", "session:s.x", blob)
    write("torn.md", "user:s.helper:s.ann", blob)
    (tmp_path / "torn.md").write_text((tmp_path / "torn.md").read_text().replace("<!-- end -->", ""))
    write("whose.md", "user:o.12:s.ann", blob)
    (tmp_path / ".eden-mirror").mkdir()
    write(".eden-mirror/aside.md", "user:s.helper:s.ann", MirrorLine("blob", BLOB, "Liked coffee."))
    (tmp_path / "user.s.ann.conflicts.md").write_text(
        "# Not in memory\n\n- because: Has a cat. <!-- new -->\n"
    )
    given = to("markdown", agents={"helper": "s.juniper"}, users={"ann": "i.7"})
    entries = await found(markdown, tmp_path, given)
    assert [(item.kind, item.scope.key) for item in items(entries)] == [
        ("shard", "shard:s.juniper:boats"),
        ("blob", "shard:s.juniper:boats"),
        ("fact", "shard:s.juniper:boats"),
        ("blob", "user:s.juniper:i.7"),
        ("reflection", "user:s.juniper:i.7"),
        ("fact", "user:s.juniper:i.7"),
        ("fact", "user:s.juniper:i.7"),
    ]
    texts = [getattr(item.request, "text", None) for item in items(entries)]
    assert texts[3:] == ["Likes tea.", "Wants *maps*.", "Has a boat.", "Written by hand."]
    assert skipped(entries) == [
        ("session.s.x.md", False),
        ("torn.md", True),
        ("user.s.ann.conflicts.md", False),
        ("whose.md", True),
    ]
    again = items(await found(markdown, tmp_path, given))
    assert [item.name for item in again] == [item.name for item in items(entries)]
    assert len({item.name for item in again}) == len(again)


@pytest.mark.parametrize("read", [mem0, markdown, chatgpt, claude])
async def test_a_path_that_holds_nothing_to_read_is_an_error_for_people(read: Reader, tmp_path: Path) -> None:
    with pytest.raises(EdenError):
        await found(read, tmp_path / "nothing", to(user="s.ada"))


DEEP = '{"a":' * 3_000 + "1" + "}" * 3_000


@pytest.mark.parametrize(
    "bad",
    [DEEP, "null", "[]", '"\\ud800"', "1e999", "9" * 5_000, '{"user_id": "ada", "memory": {"a": [null]}}'],
)
async def test_one_bad_item_of_an_array_costs_no_other_its_place(tmp_path: Path, bad: str) -> None:
    good = json.dumps({"memory": "Likes tea", "user_id": "ada"})
    file = tmp_path / "a.json"
    file.write_text(f"[{good}, {bad}, {good.replace('tea', 'milk')}]")
    entries = await found(mem0, file, to())
    assert [item.where for item in items(entries)] == ["item 1", "item 3"]
    assert skipped(entries) == [("item 2", True)]


@pytest.mark.parametrize(
    "head", ["a: " + "[" * 2_000, "? [a]\n: b", "a: !!python/object:os.system x", "created_at: 2026-99-99"]
)
async def test_front_matter_that_breaks_its_reader_costs_its_file_alone(tmp_path: Path, head: str) -> None:
    (tmp_path / "a.md").write_text(f"---\n{head}\n---\nLikes milk\n")
    (tmp_path / "b.md").write_text("---\nuser_id: ada\n---\nLikes tea\n")
    (tmp_path / "c.md").write_text(
        f"---\nscope: user:s.a:s.ada\nbase: m1\n{head}\n---\n\n## Facts\n\n- x\n\n<!-- end -->\n"
    )
    entries = await found(markdown, tmp_path, to())
    assert "b.md" in [item.where for item in items(entries)]
    assert {where.partition(",")[0] for where, _ in skipped(entries)} <= {"a.md", "c.md"}


async def test_one_bad_message_costs_its_conversation_nothing_else(tmp_path: Path) -> None:
    bad: list[Any] = [
        None,
        5,
        {},
        {"uuid": "x"},
        {"uuid": "x", "sender": {}, "text": "hi"},
        {"sender": "human"},
    ]
    said = [
        {"uuid": "1", "sender": "human", "text": "I live in Oslo."},
        *bad,
        {"uuid": "2", "sender": "human", "text": "Hello."},
    ]
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([{"uuid": "c", "chat_messages": said}]))
    entries = await found(claude, file, to("claude", user="s.ada"))
    texts = [item.request.text for item in items(entries) if isinstance(item.request, InboxAddedText)]
    assert texts == ["I live in Oslo.", "Hello."]
    assert len(skipped(entries)) == len(bad)


async def test_whatever_an_item_raises_skips_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fact(self: ImportedAs, where: str, own: Any, *_: Any) -> Any:
        raise RuntimeError(SECRET) if own == "2" else Invalid(SECRET)

    monkeypatch.setattr(ImportedAs, "fact", fact)
    entries = await found(
        mem0, lines(tmp_path, *({"id": n, "memory": "x", "user_id": "a"} for n in "123")), to()
    )
    assert skipped(entries) == [(f"line {n}", True) for n in (1, 2, 3)]
    assert SECRET not in repr(entries)
