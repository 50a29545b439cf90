"""Facts, reflections, blobs and snapshots out of records, case by case."""

import pytest

from eden_memory.limits import MOST_SOURCES
from eden_memory.schemas.documents import HISTORY, LASTING_FACTS, RECENT_FACTS
from eden_memory.schemas.events import FactChanged
from eden_memory.schemas.provenance import Statement
from eden_memory.schemas.scopes import Scope
from tests.unit.memory.memory_histories import (
    SESSION,
    blob,
    closed,
    delivered,
    fact,
    minute,
    reflection,
    source,
    tombstone,
)
from tests.unit.memory.memory_in_mind import Mind


def test_a_late_older_version_goes_into_the_history_with_its_reason() -> None:
    mind = Mind()
    mind.take([delivered(fact("f", 3, "three"))])
    mind.take([delivered(fact("f", 1, "one")), delivered(fact("f", 2, "two"))])
    known = mind.facts["f"]
    assert (known.content, known.version, known.previous_content) == ("three", 3, "two")
    assert [(one.version, one.content, one.reason) for one in known.history] == [
        (2, "two", "because of 2"),
        (1, "one", "because of 1"),
    ]


def test_a_history_ends_at_its_bound() -> None:
    mind = Mind()
    mind.take([delivered(fact("f", version, f"text {version}")) for version in range(1, HISTORY + 6)])
    assert [one.version for one in mind.facts["f"].history] == list(range(HISTORY + 4, 4, -1))


def test_the_previous_content_is_another_text() -> None:
    mind = Mind()
    mind.take([delivered(fact("f", 1, "one")), *(delivered(fact("f", n, "same")) for n in (2, 3))])
    assert mind.facts["f"].previous_content == "one"


def test_of_two_facts_that_say_the_same_the_younger_is_kept_out_of_search() -> None:
    mind = Mind()
    mind.take([delivered(fact("young", at=5))])
    assert mind.facts["young"].active
    applied = mind.take([delivered(fact("old", at=1))])
    assert (mind.facts["old"].active, mind.facts["young"].active) == (True, False)
    assert [one.id for one in applied.duplicates] == ["young"]
    assert applied.snapshot is not None
    assert [one.fact_id for one in applied.snapshot.recent_facts] == ["old"]


def test_a_repeat_asks_again_that_the_younger_be_retired() -> None:
    mind = Mind()
    mind.take([delivered(fact("young", at=5)), delivered(fact("old", at=1))])
    again = mind.take([delivered(fact("old", at=1))])
    assert (again.parts, [one.id for one in again.duplicates]) == ((), ["young"])


def test_the_younger_comes_up_when_the_older_says_something_else_or_goes() -> None:
    for change in (
        delivered(fact("old", 2, "Ana moved to Lyon.", at=1)),
        delivered(fact("old", 2, at=1, retired=True)),
        tombstone(fact("old", at=1)),
    ):
        mind = Mind()
        mind.take([delivered(fact("young", at=5)), delivered(fact("old", at=1))])
        applied = mind.take([change])
        assert mind.facts["young"].active
        assert applied.duplicates == ()


def test_a_retired_fact_is_stored_and_out_of_search() -> None:
    mind = Mind()
    applied = mind.take([delivered(fact("f")), delivered(fact("f", 2, retired=True))])
    known = mind.facts["f"]
    assert (known.active, known.embedding, known.retired_because) == (False, None, "asked")
    assert applied.snapshot is not None
    assert (applied.snapshot.active_facts, applied.snapshot.recent_facts) == (0, ())


def test_the_newest_facts_are_in_the_snapshot_newest_first() -> None:
    mind = Mind()
    applied = mind.take([delivered(fact(f"f{n}", text=f"text {n}", at=n)) for n in range(RECENT_FACTS + 9)])
    assert applied.snapshot is not None
    assert [one.fact_id for one in applied.snapshot.recent_facts][:2] == ["f48", "f47"]
    assert (len(applied.snapshot.recent_facts), applied.snapshot.active_facts) == (40, 49)


def test_the_next_newest_comes_up_for_one_that_is_retired() -> None:
    mind = Mind()
    mind.take([delivered(fact(f"f{n}", text=f"text {n}", at=n)) for n in range(RECENT_FACTS + 1)])
    applied = mind.take([delivered(fact("f7", 2, "text 7", at=7, retired=True))])
    assert applied.snapshot is not None
    assert [one.fact_id for one in applied.snapshot.recent_facts][-1] == "f0"


def test_the_applied_mark_is_one_behind_the_highest_number_seen() -> None:
    mind = Mind()
    mind.take([delivered(fact("f", outcome=7))])
    applied = mind.take([delivered(fact("g", text="other", outcome=4))])
    assert applied.snapshot is not None
    assert applied.snapshot.applied == 6


def test_a_reflection_that_comes_after_the_blob_that_absorbed_it_is_not_buffered() -> None:
    mind = Mind()
    mind.take([delivered(blob(1, ["r1"], at=60))])
    applied = mind.take([delivered(reflection("r1")), delivered(reflection("r2"))])
    known = mind.reflections["r1"]
    assert (known.absorbed, known.absorbed_into, known.absorbed_at) == (True, 1, minute(60))
    assert applied.snapshot is not None
    assert [one.reflection_id for one in applied.snapshot.buffer] == ["r2"]


def test_the_lowest_blob_version_that_lists_a_reflection_absorbed_it() -> None:
    mind = Mind()
    mind.take([delivered(reflection("r1")), delivered(blob(3, ["r1"]))])
    mind.take([delivered(blob(2, ["r1"]))])
    assert mind.reflections["r1"].absorbed_into == 2


def test_the_buffer_is_in_the_order_in_which_reflections_were_said() -> None:
    mind = Mind()
    mind.take([delivered(reflection("May", at=5)), delivered(reflection("March", at=6, said=3))])
    applied = mind.take([delivered(reflection("January", at=7, said=1))])
    assert applied.snapshot is not None
    assert [one.reflection_id for one in applied.snapshot.buffer] == ["January", "March", "May"]


def test_what_was_said_at_one_time_is_in_the_order_in_which_it_was_formed() -> None:
    mind = Mind()
    formed = [
        reflection("b", at=2),
        reflection("z", at=1, position=1),
        reflection("a", at=1, position=2),
    ]
    applied = mind.take([delivered(one) for one in formed])
    assert applied.snapshot is not None
    assert [one.reflection_id for one in applied.snapshot.buffer] == ["z", "a", "b"]


def test_a_withdrawn_blob_shows_the_one_before_and_frees_what_it_absorbed() -> None:
    mind = Mind()
    mind.take([delivered(reflection("r1")), delivered(reflection("r2"))])
    mind.take([delivered(blob(1, ["r1"])), delivered(blob(2, ["r2"]))])
    applied = mind.take([tombstone(blob(2, ["r2"]))])
    snapshot = applied.snapshot
    assert snapshot is not None
    assert (snapshot.blob, snapshot.blob_version) == ("All about Ana, 1.", 1)
    assert [one.reflection_id for one in snapshot.buffer] == ["r2"]
    assert (snapshot.highest_blob_version, snapshot.reset_revision) == (2, 0)
    assert (mind.blobs[2].gone, mind.blobs[2].content) == (True, "")


def test_a_version_far_behind_the_history_is_shown_when_all_after_it_are_withdrawn() -> None:
    mind = Mind()
    versions = [blob(number, [f"r{number}"]) for number in range(1, 40)]
    mind.take([delivered(one) for one in versions])
    applied = mind.take([tombstone(one) for one in versions[2:]])
    assert applied.snapshot is not None
    assert (applied.snapshot.blob_version, applied.snapshot.highest_blob_version) == (2, 39)
    assert mind.blob is not None
    assert (mind.blob.word_limit, [one.version for one in mind.blob.history]) == (302, [1])


def test_a_withdrawn_version_never_comes_back() -> None:
    mind = Mind()
    mind.take([delivered(reflection("r1"))])
    mind.take([tombstone(blob(1, ["r1"]))])
    applied = mind.take([delivered(blob(1, ["r1"]))])
    assert applied.snapshot is not None
    assert (applied.snapshot.blob_version, len(applied.snapshot.buffer)) == (0, 1)


def test_numbers_of_withdrawn_blobs_count_though_they_came_before_everything_else() -> None:
    mind = Mind()
    assert mind.take([tombstone(blob(4, []))]).snapshot is None
    applied = mind.take([delivered(reflection("r1"))])
    assert applied.snapshot is not None
    assert applied.snapshot.highest_blob_version == 4


def test_the_number_of_a_withdrawn_blob_counts_though_its_tombstone_came_first() -> None:
    mind = Mind()
    mind.take([tombstone(blob(4, []))])
    applied = mind.take([delivered(blob(4, []))])
    assert applied.snapshot is not None
    assert applied.snapshot.highest_blob_version == 4


def test_a_snapshot_that_missed_a_number_learns_it_when_the_record_is_read() -> None:
    """What is swept leaves a number without a snapshot: two writers at once do not notice each other."""
    mind, other = Mind(), Mind()
    other.take([delivered(reflection("r1"))])
    mind.take([tombstone(blob(4, []))])
    mind.snapshot, mind.reflections = other.snapshot, other.reflections
    applied = mind.take([delivered(blob(4, [])), tombstone(blob(4, []))])
    assert applied.snapshot is not None
    assert applied.snapshot.highest_blob_version == 4


def test_removing_documents_tells_caches_to_load_anew() -> None:
    mind = Mind()
    mind.take([delivered(fact("f")), delivered(fact("g", text="other"))])
    applied = mind.take([tombstone(fact("f"))])
    assert applied.snapshot is not None
    assert applied.snapshot.reset_revision == applied.snapshot.revision == 2
    assert list(mind.facts) == ["g"]


def test_facts_bear_the_revision_of_the_commit_that_changed_them() -> None:
    mind = Mind()
    mind.take([delivered(fact("f"))])
    mind.take([delivered(fact("g", text="other"))])
    mind.take([delivered(fact("g", text="other"))])
    assert {name: one.revision for name, one in mind.facts.items()} == {"f": 1, "g": 2}


def test_an_ended_session_stays_closed_until_what_it_held_is_absorbed() -> None:
    mind = Mind()
    applied = mind.take([delivered(closed(10)), delivered(reflection("r1", at=9, scope=SESSION))])
    assert applied.snapshot is not None
    assert applied.snapshot.closed
    applied = mind.take([delivered(blob(1, ["r1"], scope=SESSION))])
    assert applied.snapshot is not None
    assert not applied.snapshot.closed


def test_an_ended_session_is_closed_by_when_its_reflections_were_formed_not_said() -> None:
    mind = Mind()
    later = reflection("late", at=11, said=1, scope=SESSION)
    before = reflection("early", at=9, said=8, scope=SESSION)
    applied = mind.take([delivered(closed(10)), delivered(later)])
    assert applied.snapshot is not None
    assert not applied.snapshot.closed
    applied = mind.take([delivered(before)])
    assert applied.snapshot is not None
    assert applied.snapshot.closed


def test_a_blob_keeps_the_time_of_what_it_holds_and_so_does_the_one_before() -> None:
    mind = Mind()
    mind.take([delivered(blob(1, ["r1"], at=60, said=3))])
    applied = mind.take([delivered(blob(2, ["r2"], at=61, said=5))])
    assert applied.snapshot is not None
    assert applied.snapshot.blob_said_at == minute(5)
    applied = mind.take([tombstone(blob(2, ["r2"]))])
    assert applied.snapshot is not None
    assert applied.snapshot.blob_said_at == minute(3)


def test_what_is_formed_after_a_session_went_on_waits_for_the_threshold_again() -> None:
    mind = Mind()
    mind.take([delivered(closed(10)), delivered(blob(1, ["r1"], scope=SESSION))])
    applied = mind.take([delivered(reflection("r2", at=30, scope=SESSION))])
    assert applied.snapshot is not None
    assert not applied.snapshot.closed


def stated(version: int, *rests_on: int) -> FactChanged:
    """A version that a statement about message `version` led to, with the messages that the version names."""
    said = Statement(number=1, text=f"Ana rows {version}.", sources=(source(version),))
    return fact("f", version, sources=list(map(source, rests_on))).model_copy(update={"statement": said})


def test_a_fact_keeps_the_newest_statements_and_none_that_it_does_not_rest_on() -> None:
    mind = Mind()
    mind.take([delivered(stated(version, version)) for version in range(2, MOST_SOURCES + 4)])
    assert [said.version for said in mind.facts["f"].statements] == list(range(4, MOST_SOURCES + 4))
    mind.take([delivered(stated(MOST_SOURCES + 4, 1))])
    assert mind.facts["f"].statements[-1].version == MOST_SOURCES + 3


def test_lasting_facts_stay_in_a_users_snapshot_those_about_health_first_and_are_refilled() -> None:
    mind = Mind()
    mind.take([delivered(fact("nuts", text="Ada is allergic to nuts.", at=0))])
    homes = [fact(f"h{n}", text=f"Ada lives in house {n}.", at=n + 1) for n in range(LASTING_FACTS + 3)]
    mind.take([delivered(one) for one in homes])
    applied = mind.take([delivered(fact(f"f{n}", text=f"text {n}", at=100 + n)) for n in range(300)])
    assert applied.snapshot is not None
    lasting = [one.fact_id for one in applied.snapshot.lasting_facts]
    assert (lasting[:2], len(lasting)) == (["nuts", f"h{LASTING_FACTS + 2}"], LASTING_FACTS)
    assert "h3" not in lasting
    applied = mind.take([delivered(fact("nuts", 2, "Ada is allergic to nuts.", at=0, retired=True))])
    assert applied.snapshot is not None
    assert [one.fact_id for one in applied.snapshot.lasting_facts][-1] == "h3"


@pytest.mark.parametrize(
    "text",
    [
        "User has a nut allergy.",
        "User's son Tim is five.",
        "User lives in Graz.",
        "User works as a nurse.",
        "User's cat is called Biscuit.",
        "User takes 50 mg of sertraline every morning.",
        "Der Nutzer hat eine Nussallergie.",
        "El usuario es alérgico a las nueces.",
        "L'utilisateur est allergique aux noix.",
        "L'utente è allergico alle noci.",
        "O utilizador é alérgico a nozes.",
        "用户对花生过敏。",
        "ユーザーの娘は五歳です。",
        "사용자는 땅콩 알레르기가 있다.",
        "ผู้ใช้แพ้ถั่ว",
        "المستخدم لديه حساسية من الفول السوداني",
    ],
)
def test_lasting_facts_are_told_by_plain_words_of_many_languages(text: str) -> None:
    snapshot = Mind().take([delivered(fact("f", text=text))]).snapshot
    assert snapshot is not None
    assert [one.content for one in snapshot.lasting_facts] == [text]


@pytest.mark.parametrize(
    "text",
    ["User mended webhook 3.", "It is kind of blue.", "The meeting moved to Friday.", "Son tres libros."],
)
def test_other_facts_do_not_last(text: str) -> None:
    snapshot = Mind().take([delivered(fact("f", text=text))]).snapshot
    assert snapshot is not None
    assert snapshot.lasting_facts == ()


def test_only_users_have_lasting_facts() -> None:
    of_agent = fact("f", text="Ada is allergic to nuts.", scope=Scope.of_agent("s.assistant"))
    snapshot = Mind().take([delivered(of_agent)]).snapshot
    assert snapshot is not None
    assert snapshot.lasting_facts == ()
