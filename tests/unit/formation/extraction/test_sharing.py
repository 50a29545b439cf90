"""What an agent may learn from its users: the model judges, and checks that no model can pass come first."""

from pathlib import Path

import pytest

from eden_memory.formation.window_question import SharedKnowledge, TakenBack
from eden_memory.schemas.answers import AS_SAID, About, ExtractedFacts, StatedFact
from eden_memory.schemas.scopes import NotShared, Scope, SharedSessions
from tests.unit.formation.extraction.windows import (
    AGENT,
    AGENT_SCOPE,
    GROUP_SCOPE,
    MARA,
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

SETS = Path(__file__).parents[3] / "sets"
NAMES = {MARA: "Mara Lindqvist", "s.tomas": "Tomás Ferreira", "s.ichiro": "田中一郎", AGENT: "Juniper"}
DEADLINE = "Project deadline is January 30th."


def rows(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (SETS / name).read_text("utf-8").splitlines()]


BELONGS_TO_ALL = [text for _, text in rows("belongs_to_all.tsv")]
BELONGS_TO_ONE = [text for _, _, text in rows("belongs_to_one.tsv")]
IDENTIFYING = [text for _, tags, text in rows("belongs_to_one.tsv") if not tags.startswith("-")]


async def shared_of(statements: list[str]) -> set[str]:
    """Those that reach the agent where a model gives it everything, and calls all of it an organisation's."""
    found: set[str] = set()
    for text in statements:
        window = talk(text, scopes=(AGENT_SCOPE, USER_SCOPE, SESSION_SCOPE), names=NAMES)
        _, proposed = await Bench(window, stating(fact(text, "agent", 1))).facts()
        found.update(texts(proposed).get(AGENT_SCOPE.key, []))
        assert sum(map(len, texts(proposed).values())) == 1, "nothing is lost: it is the user's"
    return found


async def test_no_identifier_and_no_participants_name_gets_through_whatever_a_model_says() -> None:
    assert (len(BELONGS_TO_ONE), len(IDENTIFYING)) == (120, 44)
    assert await shared_of(IDENTIFYING) == set()


async def test_nearly_all_that_belongs_to_everybody_gets_through() -> None:
    assert len(BELONGS_TO_ALL) == 120
    assert len(await shared_of(BELONGS_TO_ALL)) >= 115


@pytest.mark.parametrize(
    ("about", "sensitive", "check"),
    [
        ("organisation", False, None),
        ("agent", False, None),
        ("world", False, None),
        ("person", False, "person"),
        ("person", True, "sensitive"),
        ("organisation", True, "sensitive"),
    ],
)
async def test_the_models_judgement_decides_and_is_told(
    about: About, sensitive: bool, check: NotShared | None
) -> None:
    judged = fact(DEADLINE, "agent", 1).model_copy(update={"about": about, "sensitive": sensitive})
    extracted, _ = await Bench(talk(DEADLINE), stating(judged)).facts()
    (found,) = extracted.facts
    assert found.scope == (USER_SCOPE if check else AGENT_SCOPE)
    assert (found.not_shared, found.demoted_from) == (check, "agent" if check else None)


@pytest.mark.parametrize(
    "judgement",
    ["", ', "about": "organisation"', ', "sensitive": false', ', "about": "team", "sensitive": false',
     ', "about": "organisation", "sensitive": "false"', ', "about": null, "sensitive": null'],
)  # fmt: skip
async def test_an_item_that_is_not_judged_as_asked_is_personal_and_sensitive(judgement: str) -> None:
    text = f'{{"facts": [{{"text": "{DEADLINE}", "scope": "agent", "messages": [1]{judgement}}}]}}'
    answer = ExtractedFacts.model_validate_json(text, context=AS_SAID)
    assert [(item.about, item.sensitive) for item in answer.facts] == [("person", True)]
    extracted, _ = await Bench(talk(DEADLINE), stating(*answer.facts)).facts()
    assert [found.scope for found in extracted.facts] == [USER_SCOPE]


async def test_a_model_that_was_not_tried_shares_nothing_of_what_users_said() -> None:
    bench = Bench(talk(DEADLINE), stating(fact(DEADLINE, "agent", 1)))
    bench.kept.tried = False
    extracted, _ = await bench.facts()
    assert [(found.scope, found.not_shared) for found in extracted.facts] == [(USER_SCOPE, "untried_model")]
    own = Talk((said(1, DEADLINE, role="assistant"),), (AGENT_SCOPE, SESSION_SCOPE), ())
    without_users = Bench(own, stating(fact(DEADLINE, "agent", 1)))
    without_users.kept.tried = False
    extracted, _ = await without_users.facts()
    assert [found.scope for found in extracted.facts] == [AGENT_SCOPE]


BOTH = (Scope.of_user(AGENT, MARA), Scope.of_user(AGENT, TOM))


@pytest.mark.parametrize(
    ("scopes", "users", "mode", "scope"),
    [
        ((AGENT_SCOPE, GROUP_SCOPE, USER_SCOPE, SESSION_SCOPE), (MARA,), "session", USER_SCOPE),
        ((AGENT_SCOPE, GROUP_SCOPE, SESSION_SCOPE), (MARA, TOM), "session", SESSION_SCOPE),
        ((AGENT_SCOPE, SESSION_SCOPE), (MARA, TOM), "session", SESSION_SCOPE),
        ((AGENT_SCOPE, GROUP_SCOPE, *BOTH, SESSION_SCOPE), (MARA, TOM), "authors", USER_SCOPE),
    ],
    ids=["one user", "a group", "several users", "authors"],
)
async def test_what_is_about_a_person_goes_to_the_user_or_the_author_else_the_session(
    scopes: tuple[Scope, ...], users: tuple[str, ...], mode: SharedSessions, scope: Scope
) -> None:
    text = "The diet plan allows 1,600 calories a day."
    window = Talk((said(1, text),), scopes, users, sharing="team", shared_sessions=mode)
    judged = {"about": "person", "sensitive": True}
    item = reflection(text, "agent", 1).model_copy(update=judged)
    formed, _ = await Bench(window, reflecting(item)).reflections()
    assert [(one.scope, one.not_shared) for one in formed] == [(scope, "sensitive")]
    extracted, _ = await Bench(window, stating(fact(text, "agent", 1).model_copy(update=judged))).facts()
    assert [one.scope for one in extracted.facts] == ([] if scope.kind == "session" else [scope])
    assert extracted.not_shared == (("sensitive",) if scope.kind == "session" else ())


async def test_what_an_author_says_of_themselves_is_their_own_whoever_else_is_named_first() -> None:
    window = Talk(
        (said(1, "a"), said(2, "b", TOM)),
        (AGENT_SCOPE, *BOTH, SESSION_SCOPE),
        (MARA, TOM),
        names={MARA: "Mara Lind", TOM: "Tom Silva"},
        shared_sessions="authors",
    )
    told = ("I was born in Lima.", 2), ("Tom was born in Peru.", 1), ("I keep bees.", 1)
    stated = [fact(text, "user", number) for text, number in told]
    both = fact("They were born abroad.", "user", 1, 2)
    extracted, _ = await Bench(window, stating(*stated, both)).facts()
    found = {item.text: item.scope for item in extracted.facts}
    assert found == {"I was born in Lima.": BOTH[1], "I keep bees.": BOTH[0]}


async def test_an_untried_models_group_learns_what_several_of_its_members_heard() -> None:
    window = Talk(
        (said(1, DEADLINE), said(2, "ok", TOM)), (AGENT_SCOPE, GROUP_SCOPE, SESSION_SCOPE), (MARA, TOM)
    )
    bench = Bench(window, stating(fact(DEADLINE, "agent", 1)))
    bench.kept.tried = False
    extracted, _ = await bench.facts()
    assert [(found.scope, found.not_shared) for found in extracted.facts] == [(GROUP_SCOPE, "untried_model")]


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("The budget of Olu's project is 9,000 euros.", "name"),
        ("Dr. Adeyemi leads the project.", "name"),
        ("The project costs 9,000 euros.", None),
    ],
)
async def test_the_name_of_another_user_of_the_agent_stays_out_of_shared_memory(
    text: str, check: NotShared | None
) -> None:
    for label in ("agent", "shard:known outages"):
        bench = Bench(talk(text), stating(fact(text, label, 1)))
        bench.kept.shared = SharedKnowledge(names=frozenset({"Olu Adeyemi"}))
        extracted, _ = await bench.facts()
        assert [found.not_shared for found in extracted.facts] == [check]


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("Refunds are paid within 30 days.", "contradicts"),
        ("Refunds are never paid within 14 days.", "contradicts"),
        ("Refunds are paid within 14 days.", None),
        ("Orders are shipped within 30 days.", None),
    ],
)
async def test_a_user_alone_cannot_contradict_what_the_operator_gave(
    text: str, check: NotShared | None
) -> None:
    bench = Bench(talk(text), stating(fact(text, "agent", 1)))
    bench.kept.shared = SharedKnowledge(given=("Refunds are paid within 14 days.",))
    extracted, _ = await bench.facts()
    assert [found.not_shared for found in extracted.facts] == [check]
    answered = Talk((said(1, text), said(2, text, role="assistant")))
    with_agent = Bench(answered, stating(fact(text, "agent", 1, 2)))
    with_agent.kept.shared = bench.kept.shared
    extracted, _ = await with_agent.facts()
    assert [found.not_shared for found in extracted.facts] == [None]


async def test_what_was_taken_back_stays_back_and_its_user_alone_lets_the_model_see_it() -> None:
    back = TakenBack("The spare key is under the mat of the office.", frozenset({MARA}))
    again = "The spare key is under the mat of the office door."
    bench = Bench(talk(again), stating(fact(again, "agent", 1)))
    bench.kept.shared = SharedKnowledge(taken_back=(back,))
    extracted, _ = await bench.facts()
    assert [(found.scope, found.not_shared) for found in extracted.facts] == [(USER_SCOPE, "taken_back")]
    assert back.text in bench.model.prompts[0].user
    for users in ((TOM,), (MARA, TOM)):
        others = Bench(talk(again, participants=users), stating(fact(again, "agent", 1)))
        others.kept.shared = bench.kept.shared
        extracted, _ = await others.facts()
        assert "taken_back" in [*extracted.not_shared, *(found.not_shared for found in extracted.facts)]
        assert back.text not in others.model.prompts[0].user.partition("# conversation")[0]


async def test_what_a_private_user_said_is_not_shared() -> None:
    extracted, _ = await Bench(talk(DEADLINE, private=(MARA,)), stating(fact(DEADLINE, "agent", 1))).facts()
    assert [found.not_shared for found in extracted.facts] == ["private_user"]


async def test_what_was_given_to_all_is_the_agents_whatever_it_says() -> None:
    window = talk("Rui's boat is called Gaivota.", session=f"s.eden%3Aadded%3A{AGENT}")
    stated: StatedFact = fact("Rui's boat is called Gaivota.", "agent", 1)
    extracted, _ = await Bench(window, stating(stated.model_copy(update={"about": "person"}))).facts()
    assert [one.scope for one in extracted.facts] == [AGENT_SCOPE]


@pytest.mark.parametrize("label", ["agent", "shard:known outages"])
async def test_in_a_group_chat_a_learning_agent_learns_and_no_user_does(label: str) -> None:
    messages = (said(1, DEADLINE), said(2, "My back hurts.", TOM))
    window = Talk(messages, (AGENT_SCOPE, SHARD_SCOPE, SESSION_SCOPE), (MARA, TOM))
    own = fact("Tom's back hurts.", "user", 2)
    extracted, _ = await Bench(window, stating(fact(DEADLINE, label, 1), own)).facts()
    assert [found.scope.kind for found in extracted.facts] == [label.partition(":")[0]]
    formed, _ = await Bench(
        window, reflecting(reflection(DEADLINE, label, 1), reflection("x", "session", 2))
    ).reflections()
    assert [one.scope.kind for one in formed] == [label.partition(":")[0], "session"]
