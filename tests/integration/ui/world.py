"""An agent with two users, a group and a shared session; some of what they said is an attack on whoever shows it."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.mongo.documents import row_of, stored
from eden_memory.schemas.documents import (
    BlobVersion,
    Consolidated,
    Context,
    CountedCall,
    Document,
    FactVersion,
    Message,
    UsageTotal,
    WindowClosing,
    WindowMessage,
    WindowTexts,
)
from eden_memory.schemas.events.facts import CommandRef
from eden_memory.schemas.scopes import Scope
from tests.integration.context.harness import Kit, now
from tests.integration.context.harness import reflection as buffered
from tests.integration.python.stored import ADA, AGENT, AT, BOB, YARD, fact, reflection, source, spread, store
from tests.names import NAMES

ATTACKS = (
    "<script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    '"><svg onload=window.hacked=1>',
    "' autofocus onfocus='window.hacked=1",
    "</textarea></pre></title><script>window.hacked=1</script>",
    '<a href="javascript:window.hacked=1">press</a>',
    "{{ 7 * 7 }} {% raw %} ${7*7}",
    '<div hx-get="/ui/sign-out" hx-trigger="load" hx-on:load="window.hacked=1"></div>',
    '<meta http-equiv="refresh" content="0;url=//evil.example"><base href="//evil.example">',
    "<form action=//evil.example><button autofocus>Sign out</button></form><!-- ]]> &lt;b&gt;",
    "\u202edrawkcab \u2066<style>*{display:none}</style>",
)
HARMLESS = (
    "It is for good, and I have brought the cat along.",
    "Likes it when someone asks about the cat.",
)
"""In their place where nobody is to be attacked."""
ONE = Scope.of_session("s.a", "s.one", ("s.ada",))
HISTORY = (
    BlobVersion(
        version=2, content="Ada likes tea and lives in Lisbon.", absorbed=(), consolidated_at=AT, said_at=AT
    ),
    BlobVersion(version=1, content="Ada likes tea.", absorbed=(), consolidated_at=AT, said_at=AT),
)
PINS = ("Never call before nine.",)
FORMATION = "s.one/1"


async def fill(kit: Kit, *, attacked: bool = True) -> None:
    """Sessions one (Ada) and both (Ada and Bob), and memory in every scope; ATTACKS in Ada's, or the like of hers."""
    said = ATTACKS if attacked else HARMLESS
    await set_up(kit.database, NAMES)
    await kit.session("one", ["ada"], title="Moving to Lisbon")
    await kit.session("both", ["ada", "bob"], group_id="yard")
    await kit.database["users"].insert_many(
        [{"_id": "ada", "name": "Ada <b>Byron</b>" if attacked else "Ada Byron"}, {"_id": "bob"}]
    )
    await kit.database["agents"].insert_one({"_id": "a", "name": "Support"})
    await _facts(kit, said)
    await _blobs(kit, said)
    await _formation(kit, said)


async def _facts(kit: Kit, said: Sequence[str]) -> None:
    history = FactVersion(version=1, content="Ada works in Porto.", decision="ADD", valid_from=AT)
    command = CommandRef(command_id="c1", action="edit", by="application", asked_by="http:desk", asked_at=AT)
    moved = fact(
        "moved",
        ADA,
        "Ada works in Lisbon.",
        60,
        version=2,
        history=(history,),
        decision="UPDATE",
        reason="She said that she moved <i>for good</i>." if said is ATTACKS else "She said that she moved.",
        command=command,
        sources=(source("s.ada", message="s.m1"), source("s.ada", message="s.m2")),
        message_ids=("s.m1", "s.m2"),
    )
    old = fact("old", ADA, "Ada lives in Porto.", -60, active=False, retired_at=AT, retired_because="update")
    attacks = [fact(f"attack-{number}", ADA, text, number) for number, text in enumerate(said)]
    others = [
        fact("bob-0", BOB, "Bob works in Turin.", 1),
        fact("all-0", AGENT, "The shop opens at nine.", 1),
    ]
    others.append(fact("yard-0", YARD, "The yard meets on Mondays.", 1))
    learned = f"Refunds take 14 days.{' ' + said[0] if said is ATTACKS else ''}"
    sources = (source("s.ada"), source("s.bob", session="s.both", message="s.m9"))
    shared = [
        fact("shared-0", AGENT, learned, 3, sources=sources[:1], session_ids=("s.one",)),
        fact("shared-1", AGENT, "The fair is in May.", 2, sources=sources, session_ids=("s.one", "s.both")),
    ]
    await store(kit, [moved, old, *attacks, *others, *shared])


async def _blobs(kit: Kit, said: Sequence[str]) -> None:
    for scope in (ADA, BOB, AGENT, YARD, ONE):
        name = scope.key.rpartition(".")[2]
        text = "Ada likes green tea, and lives in Lisbon now." if scope is ADA else f"The blob of {name}."
        blob = Consolidated(
            _id=scope.key,
            content=text,
            version=3,
            word_limit=300,
            absorbed=(),
            last_consolidated_at=AT,
            said_at=AT,
            history=HISTORY if scope is ADA else (),
            pins=PINS if scope is ADA else (),
            **spread(scope),
        )
        waiting = ["Wants short answers.", *said[:2]] if scope is ADA else [f"Reflects {name}."]
        reflections = [reflection(f"r-{name}-{at}", scope, text, at) for at, text in enumerate(waiting)]
        await store(kit, [blob, *reflections])
        await kit.put(
            scope,
            blob=text,
            blob_version=3,
            pins=PINS if scope is ADA else (),
            buffer=tuple(buffered(text) for text in waiting),
            active_facts=0 if scope is ONE else 1,
        )


async def _formation(kit: Kit, said: Sequence[str]) -> None:
    """The window of messages m1 and m2, what it cost, and the context that was made ready then."""
    texts = {"s.m1": "I moved to Lisbon.", "s.m2": said[0]}
    part: dict[str, Any] = {"version": "0" * 16, "role": "user", "user_id": "s.ada", "time": AT}
    messages = [
        WindowMessage(message_id=name, text=text, characters=len(text), **part)
        for name, text in texts.items()
    ]
    documents: list[Document] = [
        WindowTexts(
            _id=FORMATION,
            session_id="s.one",
            seq=1,
            messages=tuple(messages),
            closed=WindowClosing(because="ended", at=AT),
            completed_at=AT,
        ),
        WindowTexts(
            _id="s.both/1",
            session_id="s.both",
            seq=1,
            messages=(messages[0],),
            closed=WindowClosing(because="cold", at=AT),
        ),
        *(
            Message(_id=name, session_id="s.one", formation_id=FORMATION, characters=9, **part)
            for name in texts
        ),
        Context(
            _id="s.one/s.ada",
            session_id="s.one",
            user_id="s.ada",
            agent_id="s.a",
            xml="<Context>[today] Ada works in Lisbon. (fact)</Context>",
            scopes={ADA.key: 1},
            scope_keys=(ADA.key,),
            users=("s.ada",),
            built_at=now(),
            active_until=now() + timedelta(hours=1),
        ),
        CountedCall(
            _id="call-1",
            namespace="live",
            agent_id="s.a",
            user_id="s.ada",
            formation_id=FORMATION,
            stage="fact-extraction",
            operation="chat",
            provider="openai",
            model="fast",
            outcome="answered",
            cost_usd=Decimal("0.0123"),
            started_at=AT,
            erase_at=now() + timedelta(days=30),
        ),
        *(_total(days) for days in range(12)),
    ]
    for document in documents:
        row = row_of(document)
        if isinstance(cost := row.get("cost_usd"), Decimal):
            row["cost_usd"] = stored(cost)
        await kit.database[f"memory_{document.COLLECTION}"].insert_one(row)


def _total(days: int) -> UsageTotal:
    return UsageTotal(
        _id=f"total-{days}",
        namespace="live",
        day=f"{now() - timedelta(days=days):%Y-%m-%d}",
        agent_id="s.a",
        user_id="s.ada",
        stage="fact-extraction",
        model="fast",
        calls=40 + days,
        failed_calls=days % 3,
        input_tokens=9_000,
        output_tokens=1_000,
        cost_usd=Decimal(days * 7 % 11 + 1) / 10,
    )
