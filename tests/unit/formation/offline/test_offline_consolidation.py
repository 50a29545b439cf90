"""Blobs that the offline rules make: within the limit, newer before older, sections kept."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.formation.offline import OfflineModel
from eden_memory.formation.prompt_material import ConsolidationMaterial, DatedText
from eden_memory.models.question import Prompt
from eden_memory.schemas.answers import ConsolidatedText
from tests.unit.formation.offline.formed_memory import ASKING, answered, dated


async def blob(old: str | None, *buffer: str, words: int = 100) -> str:
    return await merged(old, *dated(*buffer), words=words)


async def merged(
    old: str | None, *buffer: DatedText, words: int = 100, said_at: datetime | None = None
) -> str:
    """`said_at`: when the newest of the old text was said."""
    material = ConsolidationMaterial("user", old, buffer, None, words, said_at)
    return (await answered(material, ConsolidatedText)).text


def january(day: int, text: str) -> DatedText:
    return DatedText(datetime(2026, 1, day, tzinfo=UTC), text)


MAY = datetime(2026, 5, 20, tzinfo=UTC)


async def test_new_lines_come_behind_the_old_ones() -> None:
    assert await blob("Ann likes tea.", "Ann speaks Finnish.") == "Ann likes tea.\nAnn speaks Finnish."


async def test_a_newer_line_replaces_an_older_one_of_the_same() -> None:
    assert await blob("Meetings are on Tuesdays.\nAnn likes tea.", "Meetings are on Fridays.") == (
        "Ann likes tea.\nMeetings are on Fridays."
    )


async def test_an_older_line_replaces_nothing_that_was_said_later_and_adds_what_is_missing() -> None:
    late = january(12, "Meetings are on Fridays."), january(13, "Ann speaks Finnish.")
    assert await merged("Meetings are on Tuesdays.\nAnn likes tea.", *late, said_at=MAY) == (
        "Meetings are on Tuesdays.\nAnn likes tea.\nAnn speaks Finnish."
    )


async def test_of_two_lines_older_than_the_text_the_later_one_stands() -> None:
    late = january(12, "Meetings are on Tuesdays."), january(13, "Meetings are on Fridays.")
    for order in (late, late[::-1]):
        assert await merged("Ann likes tea.", *order, said_at=MAY) == (
            "Ann likes tea.\nMeetings are on Fridays."
        )


async def test_when_words_run_out_what_was_said_first_goes_first() -> None:
    late = january(12, "Bo asked for a second opinion.")
    assert await merged("Ann looked for a green bicycle.", late, words=6, said_at=MAY) == (
        "Ann looked for a green bicycle."
    )


async def test_what_is_said_again_stands_once() -> None:
    assert await blob(None, "Always answer Ann in French.", "Always answer Ann in French.") == (
        "Always answer Ann in French."
    )


async def test_sections_stay_and_take_in_what_is_nearest_to_them() -> None:
    old = "## Food\nAnn eats no fish.\n## Work\nAnn sells boats in Lund."
    assert await blob(old, "Ann eats no eggs at breakfast.", "Ann sells sails in Lund.") == (
        "## Food\nAnn eats no fish.\nAnn eats no eggs at breakfast.\n## Work\nAnn sells boats in Lund.\n"
        "Ann sells sails in Lund."
    )


async def test_when_words_run_out_older_lines_go_before_newer_and_lasting_ones() -> None:
    old = "Never call Ann on Sundays.\nAnn looked for a green bicycle."
    kept = "Never call Ann on Sundays.\nBo asked for a second opinion."
    assert await blob(old, "Bo asked for a second opinion.", words=11) == kept
    assert await blob(old, "Bo asked for a second opinion.", words=10) == "Never call Ann on Sundays."


async def test_a_blob_that_is_still_too_long_is_made_shorter_when_asked_again() -> None:
    said: list[str] = []

    def check(answer: ConsolidatedText) -> str | None:
        said.append(answer.text)
        return "too long"

    material = ConsolidationMaterial("user", "One two three. Four five six. Seven eight.", (), None, 8)
    prompt = Prompt("consolidation/1", "", "", material)
    answer = await OfflineModel().ask(prompt, ConsolidatedText, ASKING, check)
    assert said == ["One two three. Four five six. Seven eight."]
    assert answer.value.text == "One two three. Four five six."


LINE = st.lists(
    st.sampled_from(["Ann", "tea", "##", "never", "12", "May", "x:", "is. Bo", "\n", ""]), max_size=12
)


@given(
    old=st.none() | LINE.map(" ".join),
    buffer=st.lists(LINE.map(" ".join), max_size=6),
    words=st.integers(1, 30),
)
async def test_a_blob_is_never_over_its_limit_and_invents_nothing(
    old: str | None, buffer: list[str], words: int
) -> None:
    text = await blob(old, *buffer, words=words)
    assert len(text.split()) <= words
    known = {word.rstrip(",;:") for one in (old or "", *buffer) for word in one.split()}
    assert {word.rstrip(",;:") for word in text.split()} <= known
