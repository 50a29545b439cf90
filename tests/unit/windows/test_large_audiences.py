"""Sessions of many users: records and documents grow with the joins, and the topics alone say who heard what."""

from functools import partial

from bson import encode
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.directory.participants import MOST_CHANGED, Audiences, SessionFacts
from eden_memory.schemas.events import FormationRequested, decode
from eden_memory.schemas.scopes import LISTED_USERS, LargeAudience, Scope
from eden_memory.stages.stage import Delivery
from eden_memory.windows.formation_requests import request
from eden_memory.windows.trigger_write_store import session_row, window_row
from eden_memory.windows.window_rule import Limits
from tests.unit.replay.test_restored_trigger import Topics, restored
from tests.unit.windows.memory_store import MemoryStore
from tests.unit.windows.records import Sessions, asked, formations, message, run, trigger
from tests.unit.windows.test_audiences import by_lists

S = "s.s"
WINDOW = 45
LIMITS = Limits()


def user(number: int) -> str:
    return f"o.{number:024x}"


def joining(count: int, first: int = 1) -> list[Delivery]:
    """Each of so many users writes one message."""
    return [message(f"s.m{n}", S, n, n / 60, user=user(n)) for n in range(first, first + count)]


async def formed(count: int) -> tuple[MemoryStore, list[Delivery], list[FormationRequested]]:
    store, chat = MemoryStore(LIMITS), joining(count)
    batches = [chat[start : start + 500] for start in range(0, count, 500)]
    return store, chat, formations(await run(trigger(store), *batches))


def own(window: FormationRequested) -> Scope:
    return window.scopes[-1]


async def test_records_and_documents_grow_with_the_joins_not_with_their_square() -> None:
    sizes: dict[int, tuple[int, int, int]] = {}
    for count in (1_500, 3_000):
        store, _, windows = await formed(count)
        assert len(windows) == count // WINDOW
        records = sum(len(one.json_bytes()) for one in windows)
        texts = sum(len(encode(window_row(one))) for one in store.stored_windows.values())
        sizes[count] = records, texts, len(encode(session_row(store.stored_sessions[S])[0]))
        assert max(len(one.json_bytes()) for one in windows) < 25_000
        assert max(len(own(one).model_dump_json()) for one in windows) < 5_000
    assert all(large < 2.1 * small for small, large in zip(sizes[1_500], sizes[3_000], strict=True))
    joins = [one.audience_change.joined for one in windows if one.audience_change is not None]
    assert len(joins) == len(windows) - LISTED_USERS // WINDOW
    assert max(map(len, joins)) <= LISTED_USERS + WINDOW


async def test_a_restored_session_knows_all_its_audiences_and_goes_on_with_them() -> None:
    store, chat, windows = await formed(1_000)
    again, _ = await restored(Topics(chat, windows), LIMITS)
    before, after = store.stored_sessions[S], again.stored_sessions[S]
    assert (after.audiences, after.users) == (before.audiences, before.users)
    more = [message(f"s.x{n}", S, 4_000 + n, 60, user=user(n)) for n in range(1, WINDOW + 1)]
    *_, live = formations(await run(trigger(store), [*joining(1, 1_001), *more]))
    *_, once_more = formations(await run(trigger(again), [*joining(1, 1_001), *more]))
    assert (once_more.formation_id, own(once_more)) == (live.formation_id, own(live))
    assert own(live).generation == len(windows) + 1


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 160)), min_size=1, max_size=8))
async def test_windows_alone_give_the_generations_that_whole_lists_give(
    present: list[tuple[int, int]],
) -> None:
    sessions, store = Sessions(), MemoryStore(LIMITS)
    stage = trigger(store, sessions)
    windows, lists = list[FormationRequested](), list[frozenset[str]]()
    for number, (first, count) in enumerate(present):
        users = tuple(map(user, range(first, first + count)))
        sessions.said[S] = SessionFacts("s.agent", users)
        records = [message(f"s.m{number}", S, 10 * number + 1, number), asked(S, 10 * number + 2, number)]
        (window,) = formations(await run(stage, records))
        expected = by_lists(frozenset(users), lists)
        if expected is None:
            lists.append(frozenset(users))
            expected = len(lists)
        assert own(window).generation == expected
        windows.append(decode_again(window))
    audiences = Audiences.of_windows(windows)
    assert [audiences.users_of(number) for number in range(1, len(lists) + 1)] == lists
    assert audiences == store.stored_sessions[S].audiences


def decode_again(window: FormationRequested) -> FormationRequested:
    again = decode(window.NAME, window.VERSION, window.json_bytes())
    assert isinstance(again, FormationRequested)
    return again


async def test_of_too_many_who_join_at_once_the_hash_alone_is_kept() -> None:
    crowd = tuple("s." + f"{number:04}".rjust(900, "x") for number in range(MOST_CHANGED // 900))
    sessions, store = Sessions({S: SessionFacts("s.agent", crowd)}), MemoryStore(LIMITS)
    windows, stage = list[FormationRequested](), trigger(store, sessions)
    present = [crowd, crowd, crowd[1:], (*crowd, "s.late"), ("s.one",), crowd]
    for number, users in enumerate(present):
        sessions.said[S] = SessionFacts("s.agent", users)
        records = [message(f"s.m{number}", S, 10 * number + 1, number), asked(S, 10 * number + 2, number)]
        windows += formations(await run(stage, records))
    assert [own(one).generation for one in windows] == [1, 1, 2, 3, 4, 1]
    assert own(windows[0]).audience == LargeAudience.of(frozenset(crowd))
    assert not any(one.audience_change for one in windows)
    stored = partial(len, encode(session_row(store.stored_sessions[S])[0]))
    assert stored() < 5_000
    audiences = Audiences.of_windows(windows)
    assert audiences == store.stored_sessions[S].audiences
    assert [audiences.users_of(number) for number in range(1, 5)] == [None, None, None, {"s.one"}]


async def test_a_lost_first_window_leaves_its_audience_and_those_built_on_it_unknown() -> None:
    _, _, windows = await formed(10 * WINDOW)
    audiences = Audiences.of_windows([one for one in windows if own(one).generation != 5])
    known = [audiences.users_of(number) for number in range(1, 11)]
    assert [users is not None for users in known] == [True] * 4 + [True] + [False] * 5
    assert audiences.generation_of([user(n) for n in range(1, 6 * WINDOW + 1)]) == 6, "the very same users"
    assert audiences.generation_of([user(n) for n in range(1, 5 * WINDOW + 2)]) is None
    assert audiences.generation_of([user(1), user(2)]) == 4


async def test_a_window_that_is_asked_for_again_says_again_who_joined() -> None:
    store, _, windows = await formed(5 * WINDOW)
    session, facts = store.stored_sessions[S], SessionFacts("s.default", None)
    for told in windows:
        window = store.stored_windows[told.formation_id]
        assert window.requested == told
        request(window, session, facts, told.settings_version)
        assert window.requested is not None
        assert window.requested is not told
        assert (own(window.requested), window.requested.audience_change) == (own(told), told.audience_change)
    plain = windows[3].model_copy(update={"audience_change": None})
    assert Audiences.of_windows([*windows[:3], plain, *windows[3:]]) == session.audiences


async def test_what_formation_reads_of_many_users_is_bounded_and_says_whom_it_needs() -> None:
    crowd = tuple(map(user, range(3_000)))
    facts = SessionFacts(
        "s.agent",
        crowd,
        private_users=(user(2_000), user(2_999)),
        names={one: f"name of {one}" for one in (*crowd, "s.agent")},
    )
    store = MemoryStore(LIMITS)
    records = [message("s.m1", S, 1, 0, user=user(2_999)), asked(S, 2, 0)]
    (window,) = formations(await run(trigger(store, Sessions({S: facts})), records))
    assert (len(window.users), len(window.participants)) == (LISTED_USERS, LISTED_USERS)
    assert window.participants[:2] == (user(2_999), user(2_000)), "its author, then who is private"
    assert set(window.private_users) == {user(2_000), user(2_999)}
    names = store.stored_windows[window.formation_id].names
    assert set(names) == {*window.participants, "s.agent"}
    assert [scope.kind for scope in window.scopes] == ["session"]
