"""What every store of facts promises, whichever it is."""

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import pytest

from eden_memory.errors import EdenError
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope
from eden_memory.search.atlas_list_store import AtlasFactLists
from eden_memory.search.fact_candidates import When
from eden_memory.search.search_engine import SearchEngine
from eden_memory.search.search_requests import SearchRequest
from tests.integration.search.search_kit import (
    AGENT,
    ANA,
    BEN,
    TEAM,
    Stand,
    fact,
    forget,
    ids,
    minute,
    retired,
    soon,
)
from tests.unit.formation.dedup.dedup_kit import WordEmbedder, embedded, source

pytestmark = pytest.mark.servers
FORMS = (
    ("voilin", "Ana plays the violin"),
    ("accomodation in Lisbon", "Booked accommodation near the harbour"),
    ("drinks", "The user likes drinking espresso"),
    ("RUNNING", "ran a marathon, runs daily"),
    ("MÜNCHEN", "Die Nutzerin wohnt in München"),
    ("cafe", "Ihr liebstes Café liegt am Markt"),
    ("猫", "我有一只猫"),
    ("東京に住んで", "彼女は東京に住んでいる"),
    ("서울", "나는 서울에 살고 있다"),
    ("हिन्दी", "मुझे हिन्दी पसंद है"),
    ("Москва", "Она живёт в городе москва".upper()),
    ("ﬁsh", "allergic to fish"),
    ("ประกันสุขภาพ", "จ่ายค่าประกันสุขภาพเดือนละ 90 ยูโร"),
    ("الإيجار", "يدفع إيجارا قدره 300 دينار"),
    ("ירושלים", "היא גרה בִּירוּשָׁלַיִם"),
    ("Łódź", "Sie wohnt in Lodz"),
)
CRAFTED = (
    '{"$ne": null}',
    "scope_key:user* OR *:*",
    "+active:false -content:x",
    '") OR ("1"="1',
    "content:/.*/",
    "(((",
    'lyon" OR scope_key:"user:s.agent:s.ben',
    "$where: 1",
    "lyon~9 AND NOT *",
    "\x00lyon\x00",
)


async def test_only_the_named_scopes_are_searched(store: Stand) -> None:
    await store.write(
        fact("mine", "lives in lyon"),
        fact("bens", "lives in lyon too", scope=BEN),
        fact("teams", "lyon is our office", scope=TEAM),
        fact("agents", "lyon has rain", scope=AGENT),
    )
    for find in (store.meant, store.said):
        everyone = {"mine", "bens", "teams", "agents"}
        await soon(lambda find=find: _set(find("lyon", ANA, BEN, TEAM, AGENT)), everyone)
        assert await find("lyon", ANA) == await find("lyon", ANA, ANA) == ["mine"]
        assert set(await find("lyon", ANA, AGENT)) == {"mine", "agents"}


async def _set(found: Awaitable[list[str]]) -> set[str]:
    return set(await found)


async def test_a_query_is_data(store: Stand) -> None:
    await store.write(fact("a", "ana lives in lyon"), fact("b", "ben lives in lyon", scope=BEN))
    await store.write(retired("gone", "lyon was home", 2))
    await soon(lambda: store.said("lyon", ANA, BEN), ["a", "b"])
    for query in CRAFTED:
        assert set(await store.said(query)) <= {"a"}


async def test_what_is_no_scope_key_is_refused(store: Stand) -> None:
    crafted: list[Any] = ["", "user:*", {"$ne": None}, {"$gt": ""}, [BEN.key], "$where", None, f"{ANA.key}|x"]
    for key in crafted:
        for when in (When(), When(include_retired=True)):
            with pytest.raises(EdenError):
                await store.lists.semantic([ANA.key, key], [embedded("lyon").vector], 5, 0, when)
            with pytest.raises(EdenError):
                await store.lists.textual([key], ["lyon"], 5, 0, when)


async def test_one_list_for_each_vector_and_query_best_first(store: Stand) -> None:
    await store.write(fact("cat", "ana has a cat"), fact("dog", "ben has a dog"), fact("both", "cat and dog"))
    await soon(lambda: _set(store.said("cat dog")), {"cat", "dog", "both"})
    vectors = [embedded("ana has a cat").vector, embedded("ben has a dog").vector]
    by_meaning = await store.lists.semantic([ANA.key], vectors, 10, 0, When())
    assert [ids(found)[0] for found in by_meaning] == ["cat", "dog"]
    by_words = await store.lists.textual([ANA.key], ["cat", "", "dog"], 10, 0, When())
    assert set(ids(by_words[0])) == {"cat", "both"}
    assert by_words[1] == []
    assert (await store.said("cat dog"))[0] == "both"
    for found in (*by_meaning, *by_words):
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


async def test_what_scores_less_or_stands_behind_is_left_out(store: Stand) -> None:
    await store.write(*(fact(f"f{n}", f"tea number {n}") for n in range(6)), fact("x", "quite another thing"))
    await soon(lambda: store.meant("tea number 3", most=1), ["f3"])
    near = await store.near("tea number 3", least=0.0)
    assert near[0].score == pytest.approx(1, abs=1e-5)
    cut = near[2].score - 1e-5
    assert ids(await store.near("tea number 3", least=cut)) == [
        o.fact.fact_id for o in near if o.score >= cut
    ]
    await soon(lambda: _count(store.said("tea number 3")), 6)
    words = await store.by_words("tea number 3")
    assert ids(await store.by_words("tea number 3", least=words[0].score)) == ["f3"]
    assert len(await store.said("tea", most=2)) == 2
    assert await store.said("tea", most=0) == await store.meant("tea", most=0) == []


async def _count(found: Awaitable[list[str]]) -> int:
    return len(await found)


async def test_a_fact_is_found_whole_with_its_vector(store: Stand) -> None:
    event = fact("a", "ana lives in lyon", replaces="older", expires_at=minute(90))
    await store.write(event)
    await soon(lambda: store.said("lyon"), ["a"])
    await soon(lambda: store.meant("ana lives in lyon"), ["a"])
    for found in (await store.near("ana lives in lyon"), await store.by_words("lyon")):
        (one,) = (ranked.fact for ranked in found)
        assert (one.text, one.version, one.scope_key) == ("ana lives in lyon", 1, ANA.key)
        assert (one.formed_at, one.valid_from, one.expires_at) == (minute(1), minute(1), minute(90))
        assert (one.replaces, one.retired_at, one.session_ids) == ("older", None, ("s.one",))
        assert one.vector == embedded("ana lives in lyon").vector


async def test_retired_changed_and_forgotten_facts_are_gone(store: Stand) -> None:
    first = [fact(name, f"{name} likes green tea") for name in ("kept", "retired", "changed", "forgotten")]
    await store.write(*first)
    await soon(lambda: _count(store.said("tea")), 4)
    await soon(lambda: _count(store.meant("likes green tea")), 4)
    await store.write(retired("retired", "retired likes green tea", 2), fact("changed", "plays chess", 2))
    await forget(store.database, first[3])
    await soon(lambda: store.said("tea"), ["kept"])
    await soon(lambda: store.meant("likes green tea", least=0.8), ["kept"])
    await soon(lambda: store.said("chess"), ["changed"])


async def test_a_forgotten_scope_is_empty_and_begins_anew(store: Stand) -> None:
    event = fact("a", "ana lives in lyon")
    await store.write(event)
    await soon(lambda: store.said("lyon"), ["a"])
    await forget(store.database, event)
    await soon(lambda: store.said("lyon"), [])
    await store.write(fact("b", "ana moved to lyon"))
    await soon(lambda: store.said("lyon"), ["b"])
    await soon(lambda: store.meant("ana moved to lyon"), ["b"])


async def test_words_are_found_in_other_forms(store: Stand) -> None:
    """Typos, endings, case, accents, compatibility forms; scripts without spaces."""
    atlas = isinstance(store.lists, AtlasFactLists)
    forms = [one for one in FORMS if not atlas or one[1].isascii()]
    scopes = [Scope.of_user("s.agent", f"s.{number}") for number, _ in enumerate(forms)]
    others = ("Owns seven blue bicycles", "zzz")
    for (_, text), scope in zip(forms, scopes, strict=True):
        texts = enumerate((text, *others))
        await store.write(*(fact(f"{scope.user_id}.{n}", one, scope=scope) for n, one in texts))
    for (query, _), scope in zip(forms, scopes, strict=True):
        await soon(lambda query=query, scope=scope: store.said(query, scope), [f"{scope.user_id}.0"])


async def test_a_rare_word_weighs_more_than_a_common_one(store: Stand) -> None:
    await store.write(*(fact(f"f{n}", f"the user likes tea {n}") for n in range(8)))
    await store.write(fact("rare", "the user plays oboe"))
    await soon(lambda: store.said("user oboe", most=1), ["rare"])


async def test_nothing_is_found_in_nothing(store: Stand) -> None:
    assert await store.lists.semantic([], [embedded("x").vector], 5, 0, When()) == [[]]
    assert await store.lists.semantic([ANA.key], [], 5, 0, When()) == []
    assert await store.lists.textual([ANA.key], ["lyon", " ", "🎉 !?"], 5, 0, When()) == [[], [], []]
    assert await store.meant("lyon") == await store.said("lyon") == []
    old = When(as_of=minute(9))
    assert await store.meant("lyon", when=old) == await store.said("lyon", when=old) == []


@pytest.mark.parametrize("when", [When(), When(as_of=minute(9))], ids=["now", "then"])
async def test_what_is_private_takes_no_place_of_what_may_be_shown(store: Stand, when: When) -> None:
    told = (heard(source(f"u{n}"), 1) for n in range(30))
    given = (heard(source(f"o{n}"), 0) for n in range(5))
    await store.write(
        *(fact(f"u{n}", f"tea tea {n}", scope=AGENT, sources=(one,)) for n, one in enumerate(told))
    )
    await store.write(
        *(fact(f"o{n}", f"some tea for {n}", scope=AGENT, sources=(one,)) for n, one in enumerate(given))
    )
    shown = [f"o{n}" for n in range(5)]
    await soon(lambda: _count(store.said("tea", AGENT, most=40)), 35)
    private = replace(when, private=frozenset({AGENT.key}))
    for find in (store.meant, store.said):
        assert not set(await find("tea tea", AGENT, most=5, when=when)) & set(shown), "users' stand before"
        assert sorted(await find("tea tea", AGENT, most=5, when=private)) == shown
    asked = SearchRequest(("tea tea",), 5, "hybrid", when, list_size=5, private=private.private)
    found = await SearchEngine(store.lists, WordEmbedder()).find([AGENT], asked)
    assert sorted(one.fact_id for one in found.facts) == shown


@pytest.mark.parametrize(("when", "moment"), [(When(), 6), (When(as_of=minute(6)), 9)], ids=["now", "then"])
async def test_what_has_expired_takes_no_place_of_what_holds(store: Stand, when: When, moment: int) -> None:
    await store.write(
        *(fact(f"e{n}", f"tea tea {n}", expires_at=minute(5)) for n in range(30)),
        *(fact(f"h{n}", f"some tea for {n}", expires_at=minute(20)) for n in range(3)),
        *(fact(f"k{n}", f"any tea for {n}") for n in range(2)),
    )
    await soon(lambda: _count(store.said("tea", most=40)), 35)
    asked = SearchRequest(("tea tea",), 5, "hybrid", when, minute(moment), list_size=5)
    before = replace(asked, when=replace(when, as_of=minute(4) if when.as_of else None), asked_at=minute(4))
    found = SearchEngine(store.lists, WordEmbedder()).find
    assert {one.fact_id[0] for one in (await found([ANA], before)).facts} == {"e"}
    shown = {"h0", "h1", "h2", "k0", "k1"}
    assert {one.fact_id for one in (await found([ANA], asked)).facts} == shown
    prolonged = fact("e7", "tea tea 7", 2, expires_at=minute(20), valid_from=minute(2))
    await store.write(prolonged)
    await soon(lambda: _count(store.said("tea", most=40, when=replace(when, unexpired_at=minute(6)))), 6)
    assert "e7" in {one.fact_id for one in (await found([ANA], asked)).facts}


def heard(message: SourceMessage, count: int) -> SourceMessage:
    return message.model_copy(update={"participants": count})


async def test_what_was_known_at_a_time(store: Stand) -> None:
    await store.write(fact("home", "ana lives in lyon", 2), fact("tea", "ana likes tea", 2))
    await store.write(
        fact("home", "ana lives in porto", 6), fact("late", "ana has a cat", 8, formed_at=minute(8))
    )
    await store.write(retired("tea", "ana likes tea", 7))
    then = When(as_of=minute(5))
    (lyon,) = await store.by_words("lyon", when=then)
    assert (lyon.fact.fact_id, lyon.fact.version, lyon.fact.text) == ("home", 2, "ana lives in lyon")
    assert await store.said("porto cat", when=then) == []
    assert await store.said("tea", when=then) == ["tea"]
    near = await store.near("ana lives in lyon", when=then)
    assert (near[0].fact.text, near[0].score) == ("ana lives in lyon", pytest.approx(1, abs=1e-5))
    assert await store.said("lives tea cat", when=When(as_of=minute(0))) == []
    later = When(as_of=minute(9))
    assert await store.said("lyon tea", when=later) == []
    assert await store.said("porto", when=later) == ["home"]
    assert "tea" in await store.meant("ana likes tea", when=then, least=0.9)


async def test_retired_facts_where_they_are_asked_for(store: Stand) -> None:
    await store.write(fact("tea", "ana likes tea"), fact("cat", "ana has a cat"))
    await store.write(retired("tea", "ana likes tea", 3), fact("bens", "ben likes tea", scope=BEN))
    asked = When(include_retired=True)
    (tea,) = await store.by_words("tea", when=asked)
    assert (tea.fact.fact_id, tea.fact.retired_at) == ("tea", minute(3))
    assert (await store.meant("ana likes tea", when=asked))[0] == "tea"
    assert "cat" in await store.meant("ana has a cat", when=asked)
    await soon(lambda: store.said("tea"), [])
