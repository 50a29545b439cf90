"""What is said through the gateway becomes messages, through the inbox: each turn once."""

from functools import partial
from typing import Any
from uuid import UUID

import orjson
import pytest

from eden_memory.settings import Settings
from eden_memory.source.messages_store import inbox_name
from tests.awaiting import until
from tests.integration.gateway.gateway_kit import Chats, behind, chats_of, replies, says, turns
from tests.integration.system.running_system import prepare, stages
from tests.model_server.chat_upstream import ChatUpstream, Reply

pytestmark = pytest.mark.servers
QUESTION, ANSWER = "I live in Porto.", "Noted, Porto."


async def _turn(chats: Chats, who: dict[str, Any], answer: str, *texts: str) -> None:
    chats.upstream.reply = says(answer)
    await chats.say(*texts, **who)


@pytest.fixture
def who(session: str, user: str) -> dict[str, Any]:
    return {"memory_id": session, "user": user}


async def test_both_turns_are_stored_with_their_author(chats: Chats, who: dict[str, Any]) -> None:
    await _turn(chats, who, ANSWER, QUESTION)
    asked, answered = await chats.rows(who["memory_id"])
    assert (asked["role"], asked["content"], asked["user_id"]) == ("user", QUESTION, who["user"])
    assert (answered["role"], answered["content"]) == ("assistant", ANSWER)
    assert answered["user_id"] is None
    assert await chats.kit.database["messages"].count_documents({"session_id": who["memory_id"]}) == 0
    assert asked["created_at"] <= answered["created_at"]


async def test_a_resent_history_is_recognised_and_only_new_turns_are_stored(
    chats: Chats, who: dict[str, Any]
) -> None:
    said: list[str] = []
    for number in range(4):
        said.append("ok" if number % 2 else f"Question {number}")
        await _turn(chats, who, "Done.", *said)
        said.append("Done.")
    assert [text for _, text in await chats.stored(who["memory_id"])] == said


async def test_a_history_cut_at_its_beginning_stores_nothing_twice(chats: Chats, who: dict[str, Any]) -> None:
    said: list[str] = []
    for number in range(4):
        said.append(f"Question {number}")
        await _turn(chats, who, f"Answer {number}", *said[-3:])
        said.append(f"Answer {number}")
    assert [text for _, text in await chats.stored(who["memory_id"])] == said


@pytest.mark.parametrize("window", [2, 3])
async def test_what_is_said_again_behind_a_cut_history_is_a_turn_of_its_own(
    own_settings: Settings, provider: ChatUpstream, who: dict[str, Any], window: int
) -> None:
    dialogue = ["Start.", "Anything else?", "No, go on.", "Next part.", "Hm.", "Anything else?"]
    dialogue += ["No, go on.", "Next part.", "Hm, fine.", "Anything else?", "No, go on.", "The end."]
    own = behind(own_settings, provider.openai_url)
    async with chats_of(own, provider) as chats, chats.client() as client:
        for number in range(0, len(dialogue), 2):
            chats.upstream.reply = says(dialogue[number + 1])
            shown = turns(*dialogue[: number + 1])[-window:]
            for _ in range(2):  # and once more, by a retry
                await client.chat.completions.create(model="m", messages=shown, extra_body=who)
                await chats.gateway.keeping.idle()
        stored = [text for _, text in await chats.stored(who["memory_id"])]
    assert stored == dialogue


async def test_an_earlier_turn_of_a_whole_history_that_is_sent_again_is_stored_once(
    chats: Chats, who: dict[str, Any]
) -> None:
    said = [QUESTION, ANSWER, "Is it far?", "No.", "How far?", "A mile."]
    for number in range(0, len(said), 2):
        await _turn(chats, who, said[number + 1], *said[: number + 1])
    await _turn(chats, who, "Not at all.", *said[:3])
    assert [text for _, text in await chats.stored(who["memory_id"])] == [*said, "Not at all."]


async def test_a_request_sent_again_stores_its_turn_once(chats: Chats, who: dict[str, Any]) -> None:
    for _ in range(3):
        await _turn(chats, who, ANSWER, QUESTION)
    assert await chats.stored(who["memory_id"]) == [("user", QUESTION), ("assistant", ANSWER)]


async def test_an_answer_generated_anew_is_stored_beside_the_first(chats: Chats, who: dict[str, Any]) -> None:
    await _turn(chats, who, ANSWER, QUESTION)
    await _turn(chats, who, "Porto it is.", QUESTION)
    await _turn(chats, who, "Yes.", QUESTION, "Porto it is.", "Is it far?")
    assert [text for _, text in await chats.stored(who["memory_id"])] == [
        QUESTION,
        ANSWER,
        "Porto it is.",
        "Is it far?",
        "Yes.",
    ]


async def test_an_edited_turn_is_stored_and_what_stands_before_it_is_not_again(
    chats: Chats, who: dict[str, Any]
) -> None:
    await _turn(chats, who, ANSWER, QUESTION)
    await _turn(chats, who, "By train.", QUESTION, ANSWER, "How do I get to Faro?")
    await _turn(chats, who, "By bus.", QUESTION, ANSWER, "How do I get to Braga?")
    said = [text for _, text in await chats.stored(who["memory_id"])]
    assert said == [
        QUESTION,
        ANSWER,
        "How do I get to Faro?",
        "By train.",
        "How do I get to Braga?",
        "By bus.",
    ]


async def test_what_was_said_before_the_gateway_is_not_taken_over(chats: Chats, who: dict[str, Any]) -> None:
    await _turn(chats, who, "Hello Ann.", "My name is Bob.", "Hello Bob.", "My name is Ann.")
    assert [text for _, text in await chats.stored(who["memory_id"])] == ["My name is Ann.", "Hello Ann."]


async def test_an_answer_that_was_never_stored_is_taken_from_the_next_history(
    chats: Chats, who: dict[str, Any]
) -> None:
    await _turn(chats, who, ANSWER, QUESTION)
    await chats.rows(who["memory_id"])
    inbox = chats.kit.database[inbox_name(chats.settings)]
    await inbox.delete_one({"session_id": who["memory_id"], "role": "assistant"})
    chats.as_restarted()
    await _turn(chats, who, "No.", QUESTION, ANSWER, "Is it far?")
    assert await chats.stored(who["memory_id"]) == [
        ("user", QUESTION),
        ("assistant", ANSWER),
        ("user", "Is it far?"),
        ("assistant", "No."),
    ]


async def test_an_answer_that_the_client_has_changed_is_not_stored_a_second_time(
    chats: Chats, who: dict[str, Any]
) -> None:
    await _turn(chats, who, f"<think>where</think>{ANSWER}", QUESTION)
    await _turn(chats, who, "No.", QUESTION, ANSWER, "Is it far?")
    assert [text for _, text in await chats.stored(who["memory_id"])] == [
        QUESTION,
        ANSWER,
        "Is it far?",
        "No.",
    ]


async def test_of_several_choices_the_one_that_was_taken_is_stored(chats: Chats, who: dict[str, Any]) -> None:
    chats.upstream.reply = says(ANSWER)
    async with chats.client() as client:
        said = await client.chat.completions.create(model="m", messages=turns(QUESTION), n=2, extra_body=who)
    assert len(said.choices) == 2
    assert await chats.stored(who["memory_id"]) == [("user", QUESTION)]
    await _turn(chats, who, "No.", QUESTION, ANSWER, "Is it far?")
    assert ("assistant", ANSWER) in await chats.stored(who["memory_id"])


async def test_system_prompts_and_pictures_are_not_stored(chats: Chats, who: dict[str, Any]) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content = [{"type": "text", "text": "What is this?"}, picture]
    messages: list[Any] = [{"role": "system", "content": "Be short."}, {"role": "user", "content": content}]
    async with chats.client() as client:
        await client.chat.completions.create(model="m", messages=messages, extra_body=who)
    assert chats.came.messages[-1]["content"] == content
    assert await chats.stored(who["memory_id"]) == [("user", "What is this?"), ("assistant", "Hello there.")]


THINKS: list[Any] = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "Where is that?"}]},
    {"type": "text", "text": "Where again?", "thought": True},
    {"type": "text", "text": ANSWER},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "content", [THINKS, f"<think>Where?</think>\n{ANSWER}", f"Where?\n</think>\n\n{ANSWER}"]
)
async def test_of_an_answer_with_thoughts_only_what_is_said_is_stored(
    chats: Chats, who: dict[str, Any], content: Any, stream: bool
) -> None:
    said = orjson.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": content}}]})
    chats.upstream.reply = (
        says(content)
        if stream
        else replies(Reply(response=(200, [(b"content-type", b"application/json")], said)))
    )
    body = {"model": "m", "messages": turns(QUESTION), "stream": stream, **who}
    answer = await chats.post(orjson.dumps(body))
    assert "Where?" in answer.text or "Where again?" in answer.text, "the caller gets all of it"
    assert await chats.stored(who["memory_id"]) == [("user", QUESTION), ("assistant", ANSWER)]
    await _turn(chats, who, "No.", QUESTION, ANSWER, "Is it far?")
    assert len(await chats.stored(who["memory_id"])) == 4, "without its thoughts it is the same answer"


async def test_sessions_are_made_with_the_ids_that_the_application_has(
    own_settings: Settings, provider: ChatUpstream, user: str
) -> None:
    own = behind(
        own_settings,
        provider.openai_url,
        create_sessions=True,
        single_user=user,
    )
    sessions = own_settings.sessions.model_copy(update={"collection": "threads", "users": "who.ids"})
    session, provider.reply = UUID(int=7), says("Hello there.")
    async with chats_of(own.model_copy(update={"sessions": sessions}), provider) as chats:
        await chats.kit.database["threads"].insert_one({"_id": UUID(int=8), "agent_id": "default"})
        messages: list[Any] = [{"role": "developer", "content": "Be short."}, *turns("Hi")]
        async with chats.client() as client:
            await client.chat.completions.create(
                model="m", messages=messages, extra_body={"memory_id": str(session)}
            )
        rows = await chats.rows(session)
        assert [(row["role"], row["user_id"], row["content"]) for row in rows] == [
            ("user", user, "Hi"),
            ("assistant", None, "Hello there."),
        ]
        made = await chats.kit.database["threads"].find_one({"_id": session})
        assert made == {"_id": session, "agent_id": "default", "who": {"ids": [user]}}


async def test_turns_become_messages_of_the_session_once(settings: Settings, provider: ChatUpstream) -> None:
    quick = settings.model_copy(
        update={
            "tailer": settings.tailer.model_copy(update={"commit_seconds": 0.2, "watermark_seconds": 0.5})
        }
    )
    own = behind(quick, provider.openai_url)
    who = {"memory_id": "c9", "user": "rui"}
    await prepare(own)
    async with chats_of(own, provider) as chats, stages(own, ("formation-trigger",)):
        recorded = chats.kit.database[own.names["messages"]]
        inbox = chats.kit.database[inbox_name(own)]

        async def stored(count: int) -> bool:
            await chats.gateway.keeping.idle()
            known = await recorded.count_documents({"session_id": "s.c9"})
            return known == count and await inbox.count_documents({}) == 0

        await _turn(chats, who, ANSWER, QUESTION)
        await until(lambda: stored(2), "both are recorded")
        await _turn(chats, who, ANSWER, QUESTION)
        await _turn(chats, who, "By train.", QUESTION, ANSWER, "How do I get to Faro?")
        await until(lambda: stored(4), "the next are recorded")
        found = await recorded.find({"session_id": "s.c9"}).sort("created_at").to_list()
        assert [(one["role"], one["user_id"]) for one in found] == [
            ("user", "s.rui"),
            ("assistant", None),
        ] * 2
        again = ["Thanks.", "Anything else?", "No.", "Fine."]
        said = ["How do I get to Faro?", "By train.", *again, *again]
        for end in range(3, len(said), 2):  # of a history that is cut to three turns, each request sent twice
            for _ in range(2):
                await _turn(chats, who, said[end], *said[:end][-3:])
                await chats.gateway.keeping.idle()
            await until(partial(stored, end + 3), f"{end + 3} are recorded")


async def test_a_session_that_the_application_has_is_not_made_by_the_gateway(
    own_settings: Settings, provider: ChatUpstream, session: str, user: str
) -> None:
    mapped = behind(own_settings, provider.openai_url)
    sessions = own_settings.sessions.model_copy(update={"collection": "sessions"})
    async with chats_of(mapped.model_copy(update={"sessions": sessions}), provider) as chats:
        await chats.say("Hi", memory_id=session, user=user)
        assert len(await chats.stored(session)) == 2
        assert await chats.kit.database["sessions"].find_one({"_id": session}) is None
