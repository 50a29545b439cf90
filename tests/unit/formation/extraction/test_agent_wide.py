"""Of what a model proposes for an agent, only what tells of nobody stays there: measured in five languages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.formation.shareable import is_agent_wide
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.scopes import Scope, SharedSessions
from tests.unit.formation.extraction.for_whom import FOR_ALL, MISSED, PRIVATE
from tests.unit.formation.extraction.of_products import LATER_PEOPLE, LATER_PRODUCTS, PEOPLE, PRODUCTS
from tests.unit.formation.extraction.windows import (
    AGENT,
    AGENT_SCOPE,
    GROUP_SCOPE,
    MARA,
    SESSION,
    SESSION_SCOPE,
    SHARD_SCOPE,
    TOM,
    USER_SCOPE,
    Bench,
    Talk,
    fact,
    reflecting,
    reflection,
    said,
    stating,
    talk,
    texts,
)

CLOSES = "The office closes at 18:00 on Fridays."
DIET = "The diet plan allows 1,600 calories a day."
BOTH = (Scope.of_user(AGENT, MARA), Scope.of_user(AGENT, TOM))


async def kept_by_the_agent(statements: tuple[str, ...]) -> set[str]:
    """Those that reach agent scope where a model proposes it for every one, each said in a session of Mara's."""
    kept: set[str] = set()
    for one in statements:
        window = talk(one, scopes=(AGENT_SCOPE, USER_SCOPE, SESSION_SCOPE))
        _, proposed = await Bench(window, stating(fact(one, "agent", 1))).facts()
        kept.update(texts(proposed).get(AGENT_SCOPE.key, []))
        assert sum(map(len, texts(proposed).values())) == 1, "nothing is lost: it is the user's"
    return kept


async def test_no_private_statement_is_the_agents_whatever_a_model_proposes() -> None:
    assert len(PRIVATE) > 100
    assert await kept_by_the_agent((*PRIVATE, *MISSED)) == set(MISSED)


async def test_most_of_what_is_for_all_stays_the_agents() -> None:
    kept = await kept_by_the_agent(FOR_ALL)
    assert len(kept) / len(FOR_ALL) >= 0.7, set(FOR_ALL) - kept


@pytest.mark.parametrize(
    ("scopes", "users", "mode", "scope"),
    [
        ((AGENT_SCOPE, GROUP_SCOPE, USER_SCOPE, SESSION_SCOPE), (MARA,), "session", USER_SCOPE),
        ((AGENT_SCOPE, GROUP_SCOPE, SESSION_SCOPE), (MARA, TOM), "session", GROUP_SCOPE),
        ((AGENT_SCOPE, SESSION_SCOPE), (MARA, TOM), "session", SESSION_SCOPE),
        ((AGENT_SCOPE, GROUP_SCOPE, SESSION_SCOPE), (MARA,), "session", SESSION_SCOPE),
        ((AGENT_SCOPE, GROUP_SCOPE, *BOTH, SESSION_SCOPE), (MARA, TOM), "authors", USER_SCOPE),
    ],
    ids=["one user", "a group", "several users", "one user without user memory", "authors"],
)
async def test_what_is_not_proven_goes_to_the_user_or_the_group_of_several_else_the_session(
    scopes: tuple[Scope, ...], users: tuple[str, ...], mode: SharedSessions, scope: Scope
) -> None:
    window = Talk((said(1, DIET),), scopes, users, sharing="team", shared_sessions=mode)
    formed, _ = await Bench(window, reflecting(reflection(DIET, "agent", 1))).reflections()
    assert [one.scope for one in formed] == [scope]
    extracted, _ = await Bench(window, stating(fact(DIET, "agent", 1))).facts()
    assert [one.scope for one in extracted.facts] == ([] if scope.kind == "session" else [scope])
    for one in extracted.facts:
        assert one.demoted_from == "agent"


@pytest.mark.parametrize("text", ["Mara closes the office at 18:00.", "The office of lind closes at 18:00."])
async def test_a_participant_is_known_by_name_in_small_letters_too(text: str) -> None:
    window = talk(text, names={MARA: "Mara Lind", AGENT: "Juniper"})
    assert is_agent_wide(CLOSES, ["Mara Lind"])
    extracted, _ = await Bench(window, stating(fact(text, "agent", 1))).facts()
    assert [one.scope for one in extracted.facts] == [USER_SCOPE]


RULE = "Never use polyurethane glue on frames."


@pytest.mark.parametrize(
    ("heard", "kept"),
    [
        ("House policy: we never use polyurethane glue on frames. I am tired.", True),
        ("One rule: if anybody asks, we never use polyurethane glue on frames.", True),
        ("I never use polyurethane glue on frames.", False),
        ("House policy is to close at six. I never use polyurethane glue on frames.", False),
    ],
)
async def test_what_somebody_states_as_a_rule_for_all_is_the_agents(heard: str, kept: bool) -> None:
    formed, _ = await Bench(talk(heard), reflecting(reflection(RULE, "agent", 1))).reflections()
    assert [one.scope for one in formed] == [AGENT_SCOPE if kept else USER_SCOPE]


async def test_a_rule_told_to_all_is_no_proof_for_what_it_does_not_say() -> None:
    heard = "House policy: no polyurethane glue on frames. The tattoo is new."
    formed, _ = await Bench(
        talk(heard), reflecting(reflection("The tattoo is new.", "agent", 1))
    ).reflections()
    assert [one.scope for one in formed] == [USER_SCOPE]


ALONE = "The nightly import ran in Porto."


@pytest.mark.parametrize(
    ("role", "heard", "text", "kept"),
    [
        ("assistant", "", ALONE, True),
        ("system", "", ALONE, True),
        ("tool", "", ALONE, False),
        ("assistant", "Good day.", ALONE, False),
        ("assistant", "", "Vera owes 300 euros.", False),
        ("assistant", "", "The meeting is on Friday.", False),
    ],
    ids=["agent", "system", "tool", "a nameless user", "a name", "unclear alone"],
)
async def test_without_users_the_agents_own_words_need_only_tell_of_nobody(
    role: str, heard: str, text: str, kept: bool
) -> None:
    messages = (said(1, text, role=role), *((said(2, heard, None),) if heard else ()))
    window = Talk(messages, (AGENT_SCOPE, SESSION_SCOPE), ())
    extracted, _ = await Bench(window, stating(fact(text, "agent", 1))).facts()
    assert [one.scope for one in extracted.facts] == ([AGENT_SCOPE] if kept else [])


async def kept_without_users(statements: tuple[str, ...]) -> set[str]:
    """Those that become facts, each said by the agent in a session without users."""
    kept: set[str] = set()
    for statement in statements:
        window = Talk((said(1, statement, role="assistant"),), (AGENT_SCOPE, SESSION_SCOPE), ())
        extracted, _ = await Bench(window, stating(fact(statement, "agent", 1))).facts()
        kept.update(found.text for found in extracted.facts)
    return kept


@pytest.mark.parametrize(
    ("statements", "share"), [(PRODUCTS, 0.95), (LATER_PRODUCTS, 0.7)], ids=["known", "later"]
)
async def test_a_product_is_not_taken_for_a_person(statements: tuple[str, ...], share: float) -> None:
    kept = await kept_without_users(statements)
    assert len(kept) / len(statements) >= share, set(statements) - kept


async def test_a_person_where_a_product_may_stand_is_nobodys_fact() -> None:
    assert await kept_without_users((*PEOPLE, *LATER_PEOPLE)) == set()


@pytest.mark.parametrize(
    ("text", "scope"), [("Port 3 fails on Mondays.", SHARD_SCOPE), ("Port 3 is Tom's.", USER_SCOPE)]
)
async def test_a_shard_holds_what_it_collects_but_nothing_of_persons(text: str, scope: Scope) -> None:
    bench = Bench(talk(text), reflecting(reflection(text, "shard:known outages", 1)))
    formed, _ = await bench.reflections()
    assert [one.scope for one in formed] == [scope]


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("Quotes hold for 30 days.", SHARD_SCOPE),
        ("Ines holds quotes.", USER_SCOPE),
        ("Mara quotes.", USER_SCOPE),
    ],
)
async def test_a_word_of_a_shards_guidance_is_no_name(text: str, scope: Scope) -> None:
    bench = Bench(talk(text), reflecting(reflection(text, "shard:known outages", 1)))
    before, _ = await bench.reflections()
    assert [one.scope for one in before] == [USER_SCOPE]
    guided = Bench(talk(text), reflecting(reflection(text, "shard:known outages", 1)))
    guided.kept.streams["shard:known outages"] = Stream(
        _id="x",
        agent_id=AGENT,
        scope="shard",
        shard="known outages",
        extraction_guidance="Prices and quotes.",
    )
    formed, _ = await guided.reflections()
    assert [one.scope for one in formed] == [scope]


async def test_what_was_given_to_all_is_the_agents_whatever_it_says() -> None:
    session = f"s.eden%3Aadded%3A{AGENT}"
    assert session != SESSION
    window = talk("Rui's boat is called Gaivota.", session=session)
    extracted, _ = await Bench(window, stating(fact("Rui's boat is called Gaivota.", "agent", 1))).facts()
    assert [one.scope for one in extracted.facts] == [AGENT_SCOPE]


@given(st.text(max_size=200), st.booleans())
def test_any_text_is_judged_and_a_name_beside_it_takes_it_away(text: str, vouched: bool) -> None:
    is_agent_wide(text, (), (text,), vouched=vouched)
    assert not is_agent_wide(f"{text} Dr. Voss knows.", (), (text,), vouched=vouched)
    assert not is_agent_wide(f"{CLOSES} {text} I know.", (), (), vouched=vouched)
