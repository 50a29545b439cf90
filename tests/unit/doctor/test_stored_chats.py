"""Chats of well-known programs: `eden doctor --init` proposes the right mapping, and it reads messages right."""

import tomllib
from dataclasses import replace

import pytest

from eden_memory.cli.doctor import FoundMapping, proposal_findings
from eden_memory.directory.session_document_store import listed_users
from eden_memory.doctor.known_shapes import known_shape
from eden_memory.doctor.mapping_checks import MessagesCandidate, judge_documents, messages_in, rooms_among
from eden_memory.doctor.mapping_proposal import propose
from eden_memory.doctor.proposed_mapping import ProposedPlace, as_toml, findings_of
from eden_memory.doctor.proposed_rooms import RoomChoice, SampledRooms
from eden_memory.doctor.proposed_sessions import (
    PeopleProposal,
    propose_agents,
    propose_sessions,
    propose_users,
)
from eden_memory.settings import MessagesSettings, SessionsSettings, Settings
from eden_memory.source.messages_store import message_mapping
from tests.unit.doctor.schemas_of_chats import BEGAN, many, nested, rooms
from tests.unit.doctor.stored_chats import (
    STORED_CHATS,
    Row,
    Said,
    StoredChat,
    exchange,
    moment_of_number,
)
from tests.unit.doctor.stored_chats_page import PAGE, page
from tests.unit.source.mappings import change, mapped, recorded

PLACE = ProposedPlace("my_app", "chats", "eden")
EACH = pytest.mark.parametrize("chat", STORED_CHATS, ids=lambda chat: chat.program)


@EACH
def test_the_first_proposal_is_right_and_in_doubt_it_asks(chat: StoredChat) -> None:
    documents = chat.documents()
    proposal = propose(documents)
    assert bool(proposal.doubt) is chat.asks, proposal.doubt
    chosen = replace(proposal, other=None, doubt="")
    written = tomllib.loads(as_toml(chosen, PLACE, len(documents)))["messages"]
    assert written == {"collection": "chats", **chat.messages}
    if chat.asks:
        assert "\nroles" not in as_toml(proposal, PLACE, len(documents)), "a guess"
        assert "two readings" in {finding.check for finding in findings_of(proposal)}


@EACH
def test_message_author_time_and_role_are_read_right(chat: StoredChat) -> None:
    settings = Settings(messages=MessagesSettings(collection="chats", **chat.messages))
    mapping, documents = message_mapping(settings), chat.documents()
    messages = messages_in(documents, settings)
    told = [each for each in enumerate(chat.said()) if chat.listed is None or each[1] is not None]
    for document, (number, said) in zip(messages, told, strict=True):
        result = mapped(change(number, "insert", document), messages=mapping)
        assert not result.unmapped
        found = [
            (Said(event.role, event.user_id, event.text), event.created_at)
            for event in map(recorded, result.records)
            if not mapping.is_deleted(document)
        ]
        moment = moment_of_number(number) if chat.dated else None
        assert found == ([] if said is None else [(said, moment)]), document
    states = {finding.check: finding.state for finding in judge_documents(documents, settings)}
    assert "fail" not in states.values(), states


@pytest.mark.parametrize(
    "chat", [chat for chat in STORED_CHATS if chat.sessions], ids=lambda chat: chat.program
)
def test_documents_of_sessions_are_joined_by_the_field_that_messages_name(chat: StoredChat) -> None:
    documents, described = chat.documents(), chat.described()
    shape = known_shape(documents)
    assert shape is not None
    assert propose_sessions("chats_of_people", described[:1], len(described), (), shape.sessions) is None
    proposed = propose_sessions("chats_of_people", described, len(described), (), shape.sessions)
    assert proposed is not None
    written = tomllib.loads(as_toml(propose(documents), PLACE, len(documents), proposed))["sessions"]
    assert written == {"collection": "chats_of_people", **chat.sessions}
    assert listed_users(SessionsSettings(**written), described[0]) not in (None, [])
    best = MessagesCandidate("my_app", "chats", documents, propose(documents))
    found = proposal_findings(Settings(), FoundMapping(best, [], proposed, []))
    assert [
        (one.check, one.what) for one in found if one.check == "message authors" and one.state != "ok"
    ] == []


def test_a_temporary_chat_of_an_earlier_librechat_is_one_that_expires() -> None:
    chat = next(chat for chat in STORED_CHATS if chat.program == "LibreChat")
    documents, described = (
        [{name: value for name, value in row.items() if name != "isTemporary"} for row in rows]
        for rows in (chat.documents(), chat.described())
    )
    shape = known_shape(documents)
    assert shape is not None
    sessions = propose_sessions("conversations", described, len(described), (), shape.sessions)
    assert (propose(documents).exclude, sessions and sessions.exclude) == (
        ["error", "expiredAt"],
        ["expiredAt"],
    )


def test_two_speakers_of_a_document_are_two_messages() -> None:
    documents = [exchange(number) for number in range(20)]
    written = tomllib.loads(as_toml(propose(documents), PLACE, len(documents)))["messages"]
    assert written == {
        "collection": "chats",
        "list": "question+answer",
        "session_id": "sessionId",
        "user_id": "userId",
        "created_at": "createdAt",
        "roles": {"answer": "assistant", "question": "user"},
    }
    settings = Settings(messages=MessagesSettings(**written))
    documents[3]["answer"] = None  # it is not answered yet
    messages, mapping = messages_in(documents, settings), message_mapping(settings)
    found = [
        (event.role, event.user_id, event.text, event.session_id, event.created_at)
        for number, message in enumerate(messages)
        for event in map(recorded, mapped(change(number, "insert", message), messages=mapping).records)
    ]
    assert found == [
        (
            role,
            f"s.{document['userId']}",
            document[field],
            f"s.{document['sessionId']}",
            document["createdAt"],
        )
        for document in documents
        for field, role in (("question", "user"), ("answer", "assistant"))
        if document[field] is not None
    ]
    states = {finding.check: finding.state for finding in judge_documents(documents, settings)}
    assert "fail" not in states.values(), states


def test_other_documents_with_such_words_are_no_exchanges() -> None:
    rooms = [{**exchange(number), "promptResponse": f"note {number}"} for number in range(20)]
    for row in rooms:
        del row["answer"]
    assert propose(rooms).listed is None
    tickets = [
        {"_id": n, "ticketId": f"t{n // 4}", "author": f"p{n % 3}", "type": kind, "text": f"Words of {n}."}
        for n, kind in enumerate(["question", "reply"] * 10)
    ]
    assert "assistant" not in propose(tickets).roles.values()


def test_the_table_in_the_docs_is_made_from_these_chats() -> None:
    assert PAGE.read_text() == page(), "python -m tests.unit.doctor.stored_chats_page writes it anew"


def test_a_room_of_several_users_is_asked_about() -> None:
    documents = many(rooms)
    proposal = propose(documents)
    settings = Settings(**tomllib.loads(as_toml(proposal, PLACE, len(documents))))
    sampled = rooms_among(documents, settings)
    assert sampled == SampledRooms(4, 4)
    best = MessagesCandidate("my_app", "chats", documents, proposal)
    asked = FoundMapping(best, [], None, [], rooms=sampled)
    found = {one.check: one for one in proposal_findings(Settings(), asked)}
    assert found["rooms"].what.startswith("in 4 of 4 sampled sessions several users take part")
    assert "EDEN_MEMORY_SHARED_SESSIONS" in found["rooms"].hint


@pytest.mark.parametrize(
    ("choice", "shared", "group"),
    [(None, None, None), ("authors", "authors", None), ("none", "session", None), ("group", None, "team.id")],
)
def test_what_is_chosen_for_rooms_is_written_and_without_a_choice_all_stand_as_comments(
    choice: RoomChoice | None, shared: str | None, group: str | None
) -> None:
    listing = [{"_id": number, "members": [1, 2], "team": {"id": "t1"}} for number in range(4)]
    sessions = propose_sessions("rooms", listing, 4)
    assert sessions is not None
    sampled = rooms_among([], Settings(), sessions)
    assert sampled == SampledRooms(4, 4, "team.id")
    chosen = replace(sessions, has_groups=choice == "group")
    documents = many(nested)
    proposed = as_toml(propose(documents), PLACE, 40, chosen, rooms=sampled, choice=choice)
    written = tomllib.loads(proposed)
    assert (written["memory"].get("shared_sessions"), written["sessions"].get("group_id")) == (shared, group)
    assert ("# no facts: shared_sessions" in proposed) is (choice is None)
    Settings(**written)


def test_agents_are_proposed_only_where_each_of_them_has_a_document() -> None:
    listing = [{"_id": number, "members": [1], "botId": f"b{number % 2}"} for number in range(4)]
    sessions = propose_sessions("rooms", listing, 4)
    assert sessions is not None
    assert list(sessions.agents) == ["b0", "b1"]
    bots = [{"_id": f"b{number}", "name": "Helper", "model": "m"} for number in range(2)]
    agents = propose_agents("bots", bots, 2)
    assert agents == PeopleProposal("bots", 2, 2, "name")
    assert (propose_agents("bots", bots[:1], 2), propose_agents("models", bots, 2)) == (None, None)
    lacking = propose_sessions("rooms", [*listing, {"_id": 4, "members": [1]}], 5)
    assert lacking is not None
    assert list(lacking.agents) == [], "the default agent has no document"
    documents = many(nested)
    written = tomllib.loads(as_toml(propose(documents), PLACE, 40, sessions, agents=agents))
    assert written["agents"] == {"collection": "bots", "name": "name"}


def test_people_are_proposed_with_their_names_and_without_their_addresses() -> None:
    people = [{"_id": number, "email": "x@example.org", "displayName": "Ana"} for number in range(4)]
    assert propose_users("appMembers", people, 5) == PeopleProposal("appMembers", 5, 4, "displayName")
    assert propose_users("orders", people, 4) is None
    assert propose_users("users", people, 9) is None, "most authors are not among them"


def test_rows_without_a_role_whom_nobody_answers_are_no_guess() -> None:
    """Two people who talk to each other in every session: neither is the agent."""
    rows = [
        {"_id": number, "roomId": f"r{number // 4}", "userId": ("ana", "rui")[number % 2], "text": "A boat?"}
        for number in range(16)
    ]
    proposal = propose(rows)
    assert (proposal.role, proposal.doubt) == (None, "")


def test_an_application_of_ones_own_is_no_known_program() -> None:
    assert known_shape([nested(number) for number in range(9)]) is None
    lacking = [{"_id": 1, "rid": "r", "msg": "Hi.", "ts": BEGAN}]
    assert known_shape(lacking) is None


def test_a_user_who_sends_a_file_alone_has_deleted_nothing() -> None:
    def sent(number: int, files: list[Row]) -> Row:
        alone = number % 6 == 2
        role, text = ("user", "assistant")[number % 2], "" if alone else f"Is boat {number} ready?"
        row = {"_id": number, "chat": f"c{number // 6}", "role": role, "body": text}
        return {**row, "attachments": files if alone else []}

    proposals = [propose([sent(number, files) for number in range(24)]) for files in ([{"name": "a"}], [])]
    assert [proposal.deleted for proposal in proposals] == [[], ["body="]]
