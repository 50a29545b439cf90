"""What was said in the same conversation as the best match is likely to be meant too. Pure.

A question's evidence stands together: the turn that answers it shares few words with it, its neighbours more. A
fact is lifted by the best score among the facts of its session that were formed at about the same time.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

from eden_memory.models.reranking.scored import Scored, best_first

APART = timedelta(hours=6)
"""A longer pause within a session is another conversation."""


def lifted(found: Sequence[Scored], weight: float) -> list[Scored]:
    """(score + `weight` x the best sibling's score) / (1 + `weight`); a fact is a sibling of its own."""
    if weight <= 0:
        return list(found)
    best = {scored.fact.fact_id: scored.score for scored in found}
    for conversation in _conversations(found):
        top = max(scored.score for scored in conversation)
        for scored in conversation:
            best[scored.fact.fact_id] = max(best[scored.fact.fact_id], top)
    return best_first(
        scored.now("siblings", (scored.score + weight * best[scored.fact.fact_id]) / (1 + weight))
        for scored in found
    )


def _conversations(found: Iterable[Scored]) -> Iterator[list[Scored]]:
    sessions: dict[tuple[str, str], list[Scored]] = {}
    for scored in found:
        for session_id in scored.fact.session_ids:
            sessions.setdefault((scored.fact.scope_key, session_id), []).append(scored)
    for members in sessions.values():
        yield from _without_pauses(members)


def _without_pauses(members: list[Scored]) -> Iterator[list[Scored]]:
    members.sort(key=lambda member: member.fact.said_at)
    run = members[:1]
    for member in members[1:]:
        if member.fact.said_at - run[-1].fact.said_at > APART:
            yield run
            run = []
        run.append(member)
    yield run
