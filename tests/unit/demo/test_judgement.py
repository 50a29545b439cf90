"""The judgement of a memory: what counts as found, where, and what as forbidden."""

from eden_memory.demo.judgement import Expectations, FormedMemory, judged, read_expectations

EXPECTED = Expectations.model_validate(
    {
        "version": 1,
        "facts": [
            {
                "id": "move",
                "scope": "user:ann",
                "or": ["agent"],
                "says": "Ann moved to Lund in May.",
                "mentions": [["Lund"], ["May", "spring"]],
                "from": ["m1"],
                "why": "",
            }
        ],
        "reflections": [
            {
                "id": "tea",
                "scope": "user:ann",
                "says": "Tea.",
                "mentions": [["tea"]],
                "from": ["m2"],
                "why": "",
            }
        ],
        "must_not": [
            {
                "id": "old",
                "scopes": ["agent", "user"],
                "mentions": [["Oslo"]],
                "unless": ["Lund"],
                "from": ["m0"],
                "why": "",
            }
        ],
    }
)
MOVE = FormedMemory("fact", "user:ann", "In SPRING Ann moved to lund.")
TEA = FormedMemory("reflection", "user:ann", "Ann likes tea.")


def test_an_item_is_found_where_one_memory_has_a_text_of_every_list() -> None:
    verdict = judged(EXPECTED, [MOVE, TEA])
    assert [(item.id, one) for item, one in verdict.found] == [("move", MOVE), ("tea", TEA)]
    assert (verdict.recall, verdict.precision, verdict.clean) == (1, 1, 1)


def test_two_memories_with_half_of_an_item_each_do_not_hold_it() -> None:
    halves = [
        FormedMemory("fact", "agent", "Ann lives in Lund."),
        FormedMemory("fact", "agent", "In May Ann moved."),
    ]
    verdict = judged(EXPECTED, halves)
    assert [item.id for item in verdict.missed] == ["move", "tea"]
    assert (verdict.recall, verdict.precision) == (0, 0)
    assert list(verdict.unlisted) == halves


def test_an_item_in_another_scope_is_missed_and_in_an_accepted_one_found() -> None:
    text = "Ann moved to Lund in May."
    assert not judged(
        EXPECTED, [FormedMemory("fact", "user:bo", text), FormedMemory("fact", "session:s", text)]
    ).found
    assert len(judged(EXPECTED, [FormedMemory("fact", "agent", text)]).found) == 1


def test_a_blob_holds_an_item_in_one_line_and_is_not_counted_in_precision() -> None:
    apart = FormedMemory("blob", "user:ann", "Ann lives in Lund.\nIn May Ann moved.")
    together = FormedMemory("blob", "user:ann", "Ann likes tea.\nAnn moved to Lund in May.")
    assert not judged(EXPECTED, [apart]).found
    assert len(judged(EXPECTED, [together]).found) == 2
    assert not judged(EXPECTED, [together]).wanted


def test_precision_counts_facts_and_reflections_beyond_the_session() -> None:
    said = [
        TEA,
        MOVE,
        FormedMemory("fact", "agent", "Bo sells boats."),
        FormedMemory("reflection", "session:s", "They talked."),
    ]
    assert judged(EXPECTED, said).precision == 2 / 3


def test_what_is_forbidden_is_seen_in_every_kind_of_memory_unless_it_is_excused() -> None:
    said = [
        FormedMemory("fact", "user:ann", "Ann lives in Oslo."),
        FormedMemory("blob", "agent", "Bo sells boats.\nAnn is from Oslo."),
        FormedMemory("fact", "agent", "Ann left Oslo for Lund."),
        FormedMemory("reflection", "session:s", "They talked about Oslo."),
    ]
    verdict = judged(EXPECTED, said)
    assert [(ban.id, one.text) for ban, one in verdict.violated] == [
        ("old", "Ann lives in Oslo."),
        ("old", "Ann is from Oslo."),
    ]
    assert verdict.clean == 1 / 2


def test_nothing_formed_misses_everything_and_violates_nothing() -> None:
    verdict = judged(EXPECTED, [])
    assert (verdict.recall, verdict.precision, verdict.clean, verdict.violated) == (0, 1, 1, ())


def test_the_demos_expectations_can_be_read_and_their_own_words_fulfil_them() -> None:
    expected = read_expectations()
    said = [FormedMemory("fact", item.scope, item.says) for item in (*expected.facts, *expected.reflections)]
    verdict = judged(expected, said)
    assert [item.id for item in verdict.missed] == []
    assert [ban.id for ban, _ in verdict.violated] == []
