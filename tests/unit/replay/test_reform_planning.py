"""Which windows a reform forms and when, what it expects to pay, and what it never does."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.errors import EdenError
from eden_memory.replay.reform.feeding import Feeding, ReformCap
from eden_memory.replay.reform.reform_plan import (
    ALL,
    AskedWindows,
    StageCalls,
    agents_changed,
    expected,
    kept_stages,
    refuse_unpriced,
    total,
)
from eden_memory.replay.reform.reform_settings import (
    PlannedWindow,
    formed_by,
    in_order,
    overridden,
    overrides_of,
    planned,
    streams_of,
    takes,
)
from eden_memory.schemas.documents import ReformAsked
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.stages.outcome import StageOutcome, StoredRecord
from eden_memory.windows.formation_requests import StoredWindow
from eden_memory.windows.window_rule import Closed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
USD = Decimal("0.01")
AGENT = "s.helper"


def window(session: int, seq: int, minute: int = 0) -> PlannedWindow:
    return PlannedWindow(f"s.{session}/{seq}-00", f"s.{session}", seq, 4, NOW + timedelta(minutes=minute))


def request(one: PlannedWindow) -> FormationRequested:
    return FormationRequested(
        formation_id=one.formation_id,
        session_id=one.session_id,
        seq=one.seq,
        agent_id=AGENT,
        users=("s.ana",),
        participants=("s.ana",),
        scopes=(Scope.of_agent(AGENT),),
        sharing="team",
        messages=(),
        characters=100,
        weighted_tokens=1.0,
        closed_because="asked",
        closed_at=one.at,
        settings_version="1",
    )


def test_a_reform_of_a_user_takes_the_large_sessions_that_they_heard() -> None:
    crowd = tuple(f"s.{number}" for number in range(300))
    scope = Scope.of_session(AGENT, "s.1", crowd, 2)
    told = request(window(1, 1)).model_copy(update={"scopes": (scope,), "participants": crowd[:100]})
    asked = ReformAsked(user_id="s.299")
    assert takes(asked, told, heard={scope.key})
    assert formed_by(asked, heard={scope.key})(scope)
    assert not takes(asked, told, heard={"session:s.1"})
    assert not formed_by(asked, heard={"session:s.1"})(scope)
    assert takes(ReformAsked(user_id="s.99"), told)
    assert formed_by(asked)(Scope.of_session(AGENT, "s.1", ("s.299",)))


WINDOWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 9)), unique_by=lambda one: one[:2]
)


@given(WINDOWS)
def test_windows_come_by_time_and_never_before_an_earlier_one_of_their_session(
    rows: list[tuple[int, int, int]],
) -> None:
    windows = [window(*row) for row in rows]
    found = in_order(windows)
    assert sorted(found, key=str) == sorted(windows, key=str)
    for session in {one.session_id for one in found}:
        seqs = [one.seq for one in found if one.session_id == session]
        assert seqs == sorted(seqs)
    if all(one.seq == 1 for one in windows):
        assert [one.at for one in found] == sorted(one.at for one in windows)


def flat(_: str, calls: StageCalls) -> Decimal:
    """A cent a call."""
    return USD * Decimal(calls.calls)


def asked_windows(count: int) -> AskedWindows:
    found = AskedWindows(windows=count, messages=4 * count, characters=100 * count)
    found.sessions = {f"s.{number}" for number in range(count)}
    return found


@given(st.integers(1, 30), st.floats(0.1, 3), st.booleans())
def test_a_message_costs_what_live_formation_paid_for_one(windows: int, calls: float, repriced: bool) -> None:
    each = {"fact-extraction": StageCalls(calls, 10 * calls, 0, 5 * calls, 2 * USD * Decimal(calls))}
    again = {"fact-extraction"} if repriced else set[str]()
    plan = expected(asked_windows(windows), windows, each, {}, flat, repriced=again)
    usd = total(plan.rows)
    assert usd is not None
    paid = (USD if repriced else 2 * USD) * Decimal(calls) * 4 * windows
    assert (plan.windows, plan.messages) == (windows, 4 * windows)
    if plan.rows:
        assert abs(usd - paid) < USD / 1000
        assert abs(plan.message_usd * plan.messages - usd) < USD / 1000
    assert expected(asked_windows(windows), 2 * windows, each, {}, flat).message_usd >= plan.message_usd / 2


def test_without_anything_recorded_start_values_stand_in_and_kept_answers_cost_nothing() -> None:
    plan = expected(asked_windows(4), 4, {}, {"fact-extraction": 1, "consolidation": 0.5}, flat)
    assert {row.stage: (row.usd, row.reused) for row in plan.rows} == {
        "fact-extraction": (Decimal(0), 4),
        "fact-dedup": (4 * USD, 0),
        "reflection-extraction": (4 * USD, 0),
        "consolidation": (2 * USD, 2),
    }


def test_an_agent_whose_streams_are_the_same_keeps_its_answers() -> None:
    row = {"_id": f"{AGENT}/user", "agent_id": AGENT, "scope": "user"}
    other = {**row, "extraction_guidance": "Prefer what was decided."}
    assert agents_changed([row], [row]) == set()
    assert agents_changed([row], [other]) == agents_changed([], [row]) == agents_changed([row], []) == {AGENT}


def test_a_price_that_is_not_known_is_not_made_up() -> None:
    plan = expected(asked_windows(2), 2, {}, {}, lambda _stage, _calls: None)
    assert total(plan.rows) is None
    with pytest.raises(EdenError, match="no price is known"):
        refuse_unpriced(plan, Decimal(1))
    refuse_unpriced(plan, None)


@given(st.sets(st.sampled_from(sorted(ALL))), st.booleans())
def test_what_is_said_to_be_kept_rests_on_nothing_that_changed(changed: set[str], alone: bool) -> None:
    found = kept_stages(changed, one_at_a_time=alone)
    assert not found & changed
    assert not (found and "fact-extraction" in changed)
    assert (found == ALL) == (alone and not changed)


@dataclass
class Servers:
    """Windows, ledger and topic in memory; what is published is complete after `slow` looks."""

    slow: int
    published: list[str] = field(default_factory=list[str])
    most: int = 0
    _looks: dict[str, int] = field(default_factory=dict[str, int])
    _done: set[str] = field(default_factory=set[str])

    async def windows(self, formation_ids: Iterable[str]) -> dict[str, StoredWindow]:
        found: dict[str, StoredWindow] = {}
        for name in formation_ids:
            session, _, rest = name.partition("/")
            asked = request(window(int(session.removeprefix("s.")), int(rest.partition("-")[0])))
            closed = Closed((), "asked", NOW)
            stored = StoredWindow(name, session, asked.seq, (), closed, None, requested=asked)
            found[name] = replace(stored, value=asked.json_bytes(), settled=True)
        return found

    async def publish(self, records: Sequence[StoredRecord]) -> None:
        self.published += [(one.key or b"").decode() for one in records]
        self.most = max(self.most, len(self.published) - len(self._done))

    async def find(self, stage: str, members: Sequence[str]) -> Mapping[str, StageOutcome]:
        found: dict[str, StageOutcome] = {}
        for member in members:
            name = member.removeprefix("formation/")
            self._looks[name] = self._looks.get(name, 0) + 1
            if name in self.published and self._looks[name] > self.slow:
                self._done.add(name)
                found[member] = StageOutcome(member, stage, (member,), (), (), "t", 0, 0, NOW)
        return found

    async def store(self, outcome: StageOutcome) -> StageOutcome:
        return outcome


async def requests(windows: Sequence[PlannedWindow]) -> AsyncGenerator[FormationRequested]:
    for one in windows:
        yield request(one)


async def nothing() -> None:
    """Settled at once."""


def feeding(servers: Servers, at_once: int, cap: Decimal | None) -> Feeding:
    def spent() -> Decimal:
        return 4 * USD * len(servers.published)

    limited = ReformCap(4 * USD, spent, cap)
    made: Any = Feeding(
        ReformAsked(), servers, servers, servers, lambda _: "memory.formations", limited, at_once, nothing
    )
    return made


@pytest.mark.parametrize("at_once", [1, 2, 5])
async def test_every_window_is_fed_once_in_order_and_never_more_than_so_many(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eden_memory.replay.reform.feeding.LOOK_SECONDS", 0)
    servers = Servers(slow=2)
    work = feeding(servers, at_once, None)
    windows = [window(session, seq, seq) for session in range(3) for seq in (1, 2, 3)]
    await work.know(requests(windows), {})
    for one in windows:
        work.offer(request(one))
    assert await work.run()
    assert servers.published == [one.formation_id for one in in_order(windows)]
    assert servers.most <= at_once
    assert (work.cap.formed, work.known_windows) == (9, 9)
    again = feeding(servers, at_once, None)
    await again.know(requests(windows), {})
    assert await again.run()
    assert len(servers.published) == 9


async def test_at_the_cap_it_stops_and_goes_on_with_a_higher_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eden_memory.replay.reform.feeding.LOOK_SECONDS", 0)
    servers = Servers(slow=1)
    windows = [window(session, 1, session) for session in range(9)]
    work = feeding(servers, 3, 4 * USD * 5)
    await work.know(requests(windows), {})
    assert not await work.run()
    assert len(servers.published) == work.cap.formed == 5
    more = feeding(servers, 3, 4 * USD * 9)
    await more.know(requests(windows), {})
    assert await more.run()
    assert sorted(servers.published) == sorted(one.formation_id for one in windows)


def test_settings_of_its_own_are_checked_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('llm = "openai"\n[memory]\nsimilar = 0.9\ndedup = false\n')
    own = overridden(Settings(), overrides_of(["memory.similar=0.8", "windows.messages=20"], file))
    assert (own.memory.similar, own.memory.dedup, own.llm, own.windows.messages) == (0.8, False, "openai", 20)
    for wrong in (
        "memory.similar=2",
        "memory.similr=1",
        "mongodb.uri=x",
        "llm=",
        "x",
    ):
        with pytest.raises(EdenError):
            overridden(Settings(), overrides_of([wrong], None))
    streams = tmp_path / "streams.json"
    for content in ("{}", "[1]", '[{"_id": "a"}]', "nothing"):
        streams.write_text(content)
        with pytest.raises(EdenError):
            streams_of(streams)


def test_a_request_is_planned_by_when_live_asked_for_it() -> None:
    one = window(1, 1)
    later = NOW + timedelta(hours=1)
    assert planned(request(one), later).at == later
    assert planned(request(one)).at == one.at
