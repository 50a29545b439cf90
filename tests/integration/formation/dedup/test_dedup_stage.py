"""fact-dedup as a stage beside the writer, on real servers: repeats, two workers, kills, a hot scope."""

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from eden_memory.formation.prompt_material import DecisionMaterial
from eden_memory.memory.memory_batch import fact_hash
from eden_memory.models.question import A, Answered, Asking, Earlier, Prompt
from eden_memory.schemas.answers import FactDecision
from eden_memory.schemas.scopes import Scope
from tests.integration.formation.dedup.dedup_servers import Stage
from tests.servers import TestServers
from tests.unit.formation.dedup.dedup_kit import Script, ScriptedModel, command, none_of, proposal, said

pytestmark = pytest.mark.servers
LYON = "Ana lives in Lyon"


def same_words(material: DecisionMaterial) -> list[FactDecision]:
    """What has the same words as a fact near it is known."""
    texts = [one.text for one in material.known] + [one.text for one in material.new]
    decisions: list[FactDecision] = []
    for number, one in enumerate(material.new, 1):
        words = sorted(one.text.lower().split())
        same = [near for near in one.candidates if sorted(texts[near - 1].lower().split()) == words]
        if same:
            decisions.append(said(number, "NONE", same[0]))
    return decisions


class SlowModel(ScriptedModel):
    """Takes a while to answer."""

    def __init__(self, seconds: float, per_token: float = 0.0, script: Script = none_of) -> None:
        super().__init__(script)
        self._seconds, self._per_token = seconds, per_token

    async def ask(
        self,
        prompt: Prompt,
        answer: type[A],
        asking: Asking,
        check: Callable[[A], str | None] | None = None,
    ) -> Answered[A]:
        answered = await super().ask(prompt, answer, asking, check)
        tokens = len(answered.value.model_dump_json()) / 4
        await asyncio.sleep(self._seconds + self._per_token * tokens)
        return answered

    async def earlier(self, unit: str) -> Earlier | None:
        return await super().earlier(unit)


async def test_twenty_sessions_that_say_the_same_at_once_make_one_fact(stage: Stage) -> None:
    turned = ("In Lyon lives Ana", "lives Ana in Lyon", "Ana in Lyon lives")
    texts = [LYON, "ana lives in lyon.", *turned]
    model = ScriptedModel(same_words)
    async with stage.running(model):
        await stage.put([proposal(f"p{number}", texts[number % len(texts)]) for number in range(20)])
        await stage.settled(20)
    (fact,) = await stage.active()
    assert len(fact["sources"]) == 20
    assert len(model.asked) < 20


async def test_a_redelivery_publishes_the_same_and_asks_nobody(stage: Stage) -> None:
    model = ScriptedModel(lambda _: [said(1, "UPDATE", 1, "Ana lives in Lyon and Porto")])
    proposals = [proposal("one", LYON), proposal("two", "Ana lives in Porto")]
    async with stage.running(model):
        await stage.put(proposals[:1])
        await stage.settled(1)
        await stage.put(proposals[1:])
        await stage.settled(2)
        asked, before = len(model.asked), await stage.changes()
        await stage.put([*proposals, proposal("three", "Ben has a dog")])
        await stage.settled(3)
    changes = await stage.changes()
    assert (asked, len(model.asked)) == (1, 1)
    assert [one for one in changes if one.text != "Ben has a dog"] == before
    assert [row["content"] for row in await stage.active()] == [
        "Ana lives in Lyon and Porto",
        "Ben has a dog",
    ]


async def test_commands_keep_their_place_among_proposals(stage: Stage) -> None:
    async with stage.running(ScriptedModel(same_words)):
        await stage.put([proposal("one", LYON)])
        await stage.settled(1)
        (fact,) = await stage.active()
        await stage.put(
            [
                command("edit", "edit", fact_id=fact["_id"], text="Ana lives in Nice"),
                proposal("two", "ana lives in nice", LYON),
                command("retire", "retire", fact_id=fact["_id"]),
                proposal("three", "Ana lives in Nice"),
            ]
        )
        await stage.settled(5)
    changes = [
        (one.decision, one.version) for one in sorted(await stage.changes(), key=lambda one: one.outcome)
    ]
    assert changes == [("ADD", 1), ("EDIT", 2), ("NONE", 3), ("ADD", 1), ("RETIRE", 4), ("ADD", 1)]
    assert [row["content"] for row in await stage.active()] == [LYON, "Ana lives in Nice"]


def many(count: int, scopes: int, seed: int) -> list[tuple[Scope, str, list[str]]]:
    """Proposals of some scopes that repeat each other all the time."""
    dice = random.Random(seed)
    words = ("ana", "ben", "lives", "in", "lyon", "porto", "has", "a", "cat", "dog")
    return [
        (
            Scope.of_user("s.agent", f"s.u{dice.randrange(scopes)}"),
            f"p{number}",
            [" ".join(dice.choices(words, k=3)) for _ in range(dice.randint(1, 3))],
        )
        for number in range(count)
    ]


async def each_fact_once(stage: Stage, proposed: list[tuple[Scope, str, list[str]]]) -> None:
    """One active fact of each text that was said, with every message that said it; versions without a gap."""
    said_by: dict[tuple[str, str], set[str]] = {}
    for scope, name, texts in proposed:
        for place, text in enumerate(texts, 1):
            said_by.setdefault((scope.key, fact_hash(text)), set()).add(f"s.{name}-{place}")
    found = {(row["scope_key"], row["hash"]): set(row["message_ids"]) for row in await stage.active()}
    assert found == said_by
    versions = Counter(one.fact_id for one in await stage.changes())
    assert versions == {row["_id"]: row["version"] for row in await stage.active()}


async def test_two_workers_that_share_the_partitions_and_their_zombies_make_each_fact_once(
    stage: Stage,
) -> None:
    proposed = many(120, 3, seed=3)
    records = [proposal(name, *texts, scope=scope) for scope, name, texts in proposed]
    async with stage.running(SlowModel(0.02)):
        await stage.put(records[:40])
        async with stage.running(SlowModel(0.02)):
            await stage.put(records[40:80])
            await stage.settled(60)
        await stage.put(records[80:])
        await stage.settled(120)
    await each_fact_once(stage, proposed)


async def test_workers_killed_at_work_make_each_fact_once(
    servers: TestServers, stage: Stage, tmp_path: Path
) -> None:
    proposed = many(150, 3, seed=4)
    await stage.put([proposal(name, *texts, scope=scope) for scope, name, texts in proposed])
    answers = tmp_path / "answers"
    for most in (2, 4, None):
        process = _start(servers, stage, answers, most)
        try:
            if most is None:
                await stage.settled(len(proposed))
            else:
                await stage.until(
                    lambda most=most: _kept(answers, most), f"{most} answers, the last not given"
                )
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)
        assert most is None or sum(len(one["members"]) for one in await stage.outcomes()) < len(proposed)
    await each_fact_once(stage, proposed)
    asked = Counter(line.split("\t")[0].split("/")[0] for line in answers.read_text().splitlines())
    assert asked, "the model was asked"
    assert max(asked.values()) == 1, "no question is asked again, in another form, whose answer had arrived"


async def _kept(answers: Path, most: int) -> bool:
    return answers.exists() and answers.read_text().count("\n") >= most  # noqa: ASYNC240


def _start(servers: TestServers, stage: Stage, answers: Path, most: int | None) -> subprocess.Popen[bytes]:
    module = "tests.integration.formation.dedup.dedup_process"
    name = stage.settings.mongodb.database
    arguments = [servers.mongodb_uri, servers.kafka_bootstrap, name, str(answers)]
    arguments += [] if most is None else [str(most)]
    return subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.DEVNULL)


async def test_a_hot_scope_decides_many_facts_with_every_call(stage: Stage) -> None:
    """Fed faster than it decides: what waits is decided together, so that calls stay few."""
    model = SlowModel(0.3, script=lambda _: [])
    facts = 200
    await stage.put([proposal(f"p{number}", f"Ana has seen the film {number}") for number in range(facts)])
    async with stage.running(model):
        await stage.settled(facts, seconds=120)
    assert len(await stage.active()) == facts
    assert len(model.asked) <= facts / 20
