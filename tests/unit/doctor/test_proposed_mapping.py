"""The mapping that documents suggest, and the `eden.toml` that says it."""

import tomllib
from typing import Any

import pytest
from bson import ObjectId
from pydantic import SecretStr

from eden_memory.doctor.finding import failed
from eden_memory.doctor.mapping_checks import judge_documents
from eden_memory.doctor.mapping_proposal import Proposal, propose, samples, turn_lists
from eden_memory.doctor.proposed_mapping import ProposedPlace, as_toml, findings_of, merged
from eden_memory.doctor.proposed_sessions import propose_sessions
from eden_memory.doctor.role_names import meaning
from eden_memory.errors import EdenError
from eden_memory.settings import Settings
from tests.unit.doctor.schemas_of_chats import (
    BEGAN,
    BOT,
    EXPECTED,
    langchain,
    many,
    nested,
    rooms,
    thread,
    turns,
    whatsapp,
)

PLACE = ProposedPlace("my_app", "chat_log", "eden")
SCHEMAS = [langchain, thread, nested, rooms]


def without(documents: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in one.items() if name not in names} for one in documents]


@pytest.mark.parametrize("make", SCHEMAS)
def test_every_field_is_found(make: Any) -> None:
    proposal, expected = propose(many(make)), EXPECTED[make]
    assert proposal.paths == {name: getattr(expected, name) for name in proposal.paths}
    assert dict(proposal.roles) == expected.roles
    assert findings_of(proposal) == []


@pytest.mark.parametrize("make", SCHEMAS)
def test_what_is_proposed_maps_every_document(make: Any) -> None:
    documents = many(make)
    written = tomllib.loads(as_toml(propose(documents), PLACE, len(documents)))
    settings = Settings(**written)
    assert (settings.source_database, settings.messages.collection) == ("my_app", "chat_log")
    findings = judge_documents(documents, settings)
    states = {one.check: one.state for one in findings}
    with_bots = make in (nested, rooms)
    assert states.pop("authors of answers", None) == ("ok" if with_bots else None), "its bot has an id"
    assert states == dict.fromkeys(("field mapping", "message texts", "roles", "message authors"), "ok")


@pytest.mark.parametrize(
    ("fields", "mark"),
    [
        ({"deletedAt": None}, "deletedAt"),
        ({"deletedAt": BEGAN}, "deletedAt"),
        ({"isDeleted": False}, "isDeleted"),
        ({"isDeleted": 1}, "isDeleted"),
        ({"meta": {"deleted_at": BEGAN}}, "meta.deleted_at"),
        ({"t": "rm"}, "t=rm"),
        ({"state": "deleted"}, "state=deleted"),
        ({"subtype": "message_deleted"}, "subtype=message_deleted"),
    ],
)
def test_what_marks_a_message_as_deleted_is_proposed(fields: dict[str, Any], mark: str) -> None:
    documents = many(thread)
    assert propose(documents).deleted == []
    documents[-1] |= fields
    written = as_toml(propose(documents), PLACE, len(documents))
    assert Settings(**tomllib.loads(written)).messages.deleted == (mark,)
    chosen = written.replace(mark, "gone")
    assert tomllib.loads(merged(chosen, as_toml(propose(many(thread)), PLACE, 9)))["messages"]["deleted"] == [
        "gone"
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"sender": {"deleted": True}},
        {"deletedFor": ["ana"]},
        {"sender": {"state": "deleted"}},
        {"deletedBy": "x"},
    ],
)
def test_what_marks_something_else_as_deleted_is_not_proposed(fields: dict[str, Any]) -> None:
    documents = many(thread)
    documents[-1] |= fields
    assert propose(documents).deleted == []


def test_what_keeps_messages_out_of_memory_is_proposed() -> None:
    documents = many(rooms)
    documents[0] |= {"t": "uj", "isTemporary": False}
    documents[1] |= {"t": "e2e", "temporaryName": True}
    settings = Settings(**tomllib.loads(as_toml(propose(documents), PLACE, len(documents))))
    assert settings.messages.exclude == ("isTemporary", "t=uj")
    sessions = propose_sessions("conversations", [{"_id": 1, "users": [1], "isTemporary": True}], 1)
    assert sessions is not None
    written = tomllib.loads(as_toml(propose(documents), PLACE, len(documents), sessions))
    assert written["sessions"]["exclude"] == ["isTemporary"]


def test_an_emptied_text_of_a_user_is_proposed_and_judged_no_more() -> None:
    documents = many(nested)
    documents[0]["payload"]["body"] = ""  # of an answer that has not begun
    assert propose(documents).deleted == []
    for document in documents[1:3]:
        document["payload"]["body"] = ""
    written = tomllib.loads(as_toml(propose(documents), PLACE, len(documents)))
    assert written["messages"]["deleted"] == ["payload.body="]
    texts = [
        one.what for one in judge_documents(documents, Settings(**written)) if one.check == "message texts"
    ]
    assert texts == ["37 have text, 37 say when they were written"]
    documents[1]["payload"]["caption"] = "A photo of the boat"
    assert propose(documents).deleted == []


def test_a_text_that_says_it_is_deleted_is_proposed() -> None:
    documents = many(langchain)
    path = propose(documents).content
    assert path is not None
    outer, _, inner = path.rpartition(".")
    (documents[-1][outer] if outer else documents[-1])[inner] = "[deleted]"
    assert propose(documents).deleted == [f"{path}=[deleted]"]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("human", "user"),
        ("HumanMessage", "user"),
        ("ROLE_USER", "user"),
        ("ai", "assistant"),
        ("AIMessageChunk", "assistant"),
        ("model", "assistant"),
        ("Bot", "assistant"),
        ("developer", "system"),
        ("function", "tool"),
        ("tool-result", "tool"),
        ("narrator", None),
        ("user_012", None),
        ("guest-7", None),
        ("gpt-4", "assistant"),
        ("None", None),
        ("", None),
        (None, None),
        (1, None),
    ],
)
def test_a_role_is_mapped_by_what_it_means(name: object, role: str | None) -> None:
    assert meaning(name) == role


def test_ids_that_begin_with_user_are_authors_and_no_roles() -> None:
    documents = [
        {**one, "userId": f"user_{number // 4:03}"} for number, one in enumerate(many(thread))
    ]  # of both, as a session's owner often is
    proposal = propose(without(documents, "metadata"))
    assert (proposal.role, proposal.user_id) == ("role", "userId")


@pytest.mark.parametrize(
    ("address", "written"),
    [
        ("mongodb://db/?replicaSet=rs0", {"uri": "mongodb://db/?replicaSet=rs0"}),
        ("mongodb://eden:s3cret@db/?replicaSet=rs0", {}),
        ("mongodb://db/?authMechanismProperties=AWS_SESSION_TOKEN:s3cret", {}),
        ("", {}),
    ],
)
def test_an_address_is_written_unless_it_may_hold_a_secret(address: str, written: dict[str, str]) -> None:
    place = ProposedPlace("my_app", "chat_log", "eden", SecretStr(address))
    text = as_toml(propose(many(nested)), place, 40)
    assert tomllib.loads(text)["mongodb"] == {**written, "database": "eden"}
    assert "s3cret" not in text


def test_what_is_missing_is_said_with_what_follows() -> None:
    bare = without(many(langchain), "type", "createdAt", "updatedAt")
    for number, one in enumerate(bare):
        one["_id"] = f"m-{number}"
        one["data"].pop("user_id", None)
    proposal = propose(bare)
    assert (proposal.role, proposal.user_id, proposal.created_at) == (None, None, None)
    found = {one.check: one for one in findings_of(proposal)}
    assert {name: one.state for name, one in found.items()} == dict.fromkeys(
        ("roles", "message authors", "time"), "warn"
    )
    assert "half the weight of a user's" in found["roles"].what
    assert "no user gets a memory of their own" in found["message authors"].what
    assert "count as written when they were read" in found["time"].what
    text = as_toml(proposal, PLACE, len(bare))
    assert '# role = "…"  # not found' in text
    assert set(tomllib.loads(text)["messages"]) == {"collection", "session_id", "content"}


def test_the_time_in_the_ids_is_taken_where_there_is_no_other() -> None:
    undated = [{**one, "sessionId": ObjectId()} for one in without(many(langchain), "createdAt", "updatedAt")]
    proposal = propose(undated)
    assert (proposal.session_id, proposal.created_at, proposal.likeness) == (None, "_id", 3)
    (found,) = [one for one in findings_of(proposal) if one.check == "time"]
    assert (found.state, "the second in which the message was inserted" in found.what) == ("warn", True)
    text = as_toml(proposal, PLACE, len(undated))
    assert 'created_at = "_id"  # ObjectId' in text


def test_without_a_session_or_a_text_nothing_can_be_mapped() -> None:
    assert failed(findings_of(propose(without(many(langchain), "sessionId"))))
    assert propose(without(many(nested), "conversation")).session_id is None
    silent = propose(without(many(thread), "content"))
    assert failed(findings_of(silent))
    assert silent.likeness == 0
    assert propose([]).likeness == 0


def test_a_list_of_turns_is_no_content_and_a_list_of_parts_is() -> None:
    documents = many(turns)
    assert turn_lists(documents) == ["messages"]
    found = propose(without(documents, "lastMessage"))
    assert (found.listed, found.content, found.session_id) == ("messages", "messages.text", "chatId")
    mapped = Settings(messages={"session_id": "chatId", "content": "messages", "user_id": "userId"})  # pyright: ignore
    (texts,) = [one for one in judge_documents(documents, mapped) if one.check == "message texts"]
    assert (texts.state, "lists several messages in each document" in texts.what) == ("fail", True)
    results = [{"type": "tool_call", "text": "a call"}, {"type": "tool_result", "text": "its result"}]
    assert turn_lists([{"content": results}, *many(langchain)]) == []


def test_roles_that_are_not_clear_are_named_and_not_guessed() -> None:
    documents = many(langchain)
    documents[0]["type"] = "narrator"
    documents[1]["type"] = None
    proposal = propose(documents)
    assert dict(proposal.roles) == {"human": "user", "ai": "assistant"}
    what = [one.what for one in findings_of(proposal)]
    assert any("'narrator' (1)" in one for one in what)
    assert any("1 of the documents have no role" in one for one in what)
    text = as_toml(proposal, PLACE, len(documents))
    assert '# not clear: "narrator" (1 documents) counts as other' in text
    assert "None" not in text


@pytest.mark.parametrize(
    ("flag", "true"),
    [("isBot", "assistant"), ("from_me", "user"), ("author.is_human", "user"), ("readByUser", None)],
)
def test_a_flag_says_who_speaks_if_its_name_says_nothing_else(flag: str, true: str | None) -> None:
    of = "ai" if true == "assistant" else "human"
    outer, _, inner = flag.rpartition(".")
    documents: list[dict[str, Any]] = []
    for one in many(langchain):
        said = {inner: True} if one["type"] == of else {}
        documents.append({**one, outer: said} if outer else one | said)
    proposal = propose(without(documents, "type"))
    assert (proposal.role, proposal.roles.get("true")) == ((flag, true) if true else (None, None))
    assert proposal.user_id == "data.user_id"


def readings(proposal: Proposal) -> list[tuple[str | None, str | None]]:
    """Who is the user in each reading, and where its id is."""
    found = [proposal] if proposal.other is None else [proposal, proposal.other]
    return [
        (next((name for name, ours in one.roles.items() if ours == "user"), None), one.user_id)
        for one in found
    ]


def test_who_answers_in_all_sessions_is_the_bot_though_its_account_calls_itself_me() -> None:
    assert readings(propose(many(whatsapp))) == [("false", "author")]
    own_app = [one | {"fromMe": not one["fromMe"]} for one in many(whatsapp)]
    assert readings(propose(own_app)) == [("true", "author")]
    named = [one | {"fromMe": "me" if one["fromMe"] else "them"} for one in many(whatsapp)]
    assert readings(propose(named)) == [("them", "author")]


@pytest.mark.parametrize(
    "authors",
    [
        {"author": None},  # who is the bot is nowhere said
        {"author": BOT},  # one name on both sides
    ],
)
def test_where_nothing_says_who_is_me_neither_reading_is_proposed(authors: dict[str, Any]) -> None:
    documents = [one | authors for one in many(whatsapp)]
    proposal = propose(documents)
    assert [user for user, _ in readings(proposal)] == ["true", "false"]
    assert failed(findings_of(proposal))
    written = as_toml(proposal, PLACE, len(documents))
    assert "roles" not in tomllib.loads(written)["messages"]
    assert '# reading 1: roles = { "false" = "assistant", "true" = "user" }' in written
    assert '# reading 2: roles = { "false" = "user", "true" = "assistant" }' in written
    assert propose(many(whatsapp, 9)).other is not None, "one session proves nothing"


def test_clear_names_that_the_authors_contradict_are_not_proposed() -> None:
    documents = [one | {"fromMe": "user" if one["fromMe"] else "bot"} for one in many(whatsapp)]
    proposal = propose(documents)
    assert [user for user, _ in readings(proposal)] == [None, "bot"]
    assert "as if users and agent were swapped" in proposal.doubt


def test_an_author_who_is_the_user_of_all_sessions_is_not_proposed_unasked() -> None:
    documents = [one | {"metadata": {"user_id": "acme"} if one["metadata"] else {}} for one in many(thread)]
    proposal = propose(documents)
    assert [path for _, path in readings(proposal)] == ["metadata.user_id", None]
    assert "user_id" not in tomllib.loads(as_toml(proposal, PLACE, len(documents)))["messages"]
    assert propose(documents[:20]).other is None, "two sessions of one user are usual"


def test_a_flag_by_which_one_side_alone_speaks_is_not_proposed() -> None:
    documents = [one | {"isBot": False} for one in many(rooms)]
    proposal = propose(documents)
    assert proposal.other is not None
    assert (proposal.role, proposal.other.role) == ("isBot", None)


def test_samples_show_both_sides_of_a_session() -> None:
    proposal = propose([one | {"author": None} for one in many(whatsapp)])
    assert proposal.other is not None
    shown = [samples(many(whatsapp), reading) for reading in (proposal, proposal.other)]
    assert [[role for role, *_ in three] for three in shown] == [
        ["assistant", "user", "assistant"],
        ["user", "assistant", "user"],
    ]
    assert shown[0][0][2] == "My PIN is 4710."


def test_the_time_of_an_edit_is_not_taken_for_the_writing() -> None:
    documents = [{**one, "updated_at": BEGAN} for one in without(many(thread), "created_at")]
    assert propose(documents).created_at is None


def test_no_line_holds_what_a_message_says() -> None:
    documents = many(langchain)
    for one in documents:
        one["data"]["content"] = "my number is 4711"
    proposal = propose(documents)
    said = as_toml(proposal, PLACE, len(documents)) + "".join(one.what for one in findings_of(proposal))
    assert "4711" not in said


def test_marks_that_are_set_by_hand_stay_beside_those_that_are_proposed() -> None:
    documents = many(rooms)
    documents[0] |= {"t": "uj", "deletedAt": BEGAN}
    proposed = as_toml(propose(documents), PLACE, len(documents))
    found = tomllib.loads(proposed)["messages"]
    present = '[messages]\ndeleted = ["state=off"]\nexclude = ["t=private", "t=uj"]\n'
    whole = merged(present, proposed)
    read = tomllib.loads(whole)["messages"]
    assert read == {**found, "deleted": ["state=off", "deletedAt"], "exclude": ["t=private", "t=uj"]}
    assert merged(whole, proposed) == whole


def test_an_eden_toml_that_is_there_keeps_its_other_sections() -> None:
    present = """llm = "openai"

[mongodb]
uri = "mongodb://somewhere"  # mine

[messages]
collection = "old"
on_delete = "keep"
[messages.roles]
x = "user"

[windows]
messages = 10
"""
    whole = merged(present, as_toml(propose(many(nested)), PLACE, 40))
    read = tomllib.loads(whole)
    assert (read["llm"], read["mongodb"]) == ("openai", {"uri": "mongodb://somewhere"})
    assert (read["windows"], read["source"]) == ({"messages": 10}, {"database": "my_app"})
    assert (read["messages"]["collection"], read["messages"]["on_delete"]) == ("chat_log", "keep")
    assert read["messages"]["roles"] == {"Bot": "assistant", "Customer": "user"}
    assert "# mine" in whole
    assert merged(whole, as_toml(propose(many(nested)), PLACE, 40)) == whole
    with pytest.raises(EdenError, match=r"cannot be put into eden\.toml"):
        merged('messages.collection = "old"\n', as_toml(propose(many(nested)), PLACE, 40))
