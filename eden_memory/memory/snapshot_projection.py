"""The snapshot of a scope: all that a context needs of it, from what a batch changed and what was there. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from operator import itemgetter
from typing import Final, Protocol, TypeVar

from eden_memory.limits import SHOWN_OF_A_BUFFER
from eden_memory.memory.memory_batch import Part, ScopeBatch, StoredScope, scope_fields
from eden_memory.schemas.documents import (
    BUFFER,
    LASTING_FACTS,
    RECENT_FACTS,
    BufferedReflection,
    Consolidated,
    Fact,
    RecentFact,
    Reflection,
    Snapshot,
)
from eden_memory.schemas.events import ScopeChanged
from eden_memory.schemas.scopes import Scope


class UnreadBlob:
    """Marker for a blob that was not read: the snapshot keeps its values."""


UNREAD_BLOB: Final = UnreadBlob()


def snapshot_after(
    batch: ScopeBatch,
    stored: StoredScope,
    facts: Mapping[str, Fact],
    reflections: Mapping[str, Reflection],
    blob: Consolidated | UnreadBlob | None,
) -> Snapshot | None:
    """Return the new snapshot, all but its revision and time; None if nothing is known of the scope."""
    before = stored.snapshot
    if before is None and batch.scope is None:
        return None
    base = before or _first(batch)
    closed_at = max((time for time in (base.closed_at, batch.closed_at) if time is not None), default=None)
    buffer = _buffer(base, stored, reflections)
    return base.model_copy(
        update={
            **_blob(blob),
            "buffer": buffer,
            "recent_facts": _recent(base, stored, facts),
            "lasting_facts": _lasting(base, stored, facts),
            "active_facts": base.active_facts + _active(facts.values()) - _active(stored.facts.values()),
            "applied": max(base.applied, batch.outcome - 1),
            "highest_blob_version": max(
                base.highest_blob_version, stored.highest, *batch.blobs, *batch.gone_blobs, 0
            ),
            "closed_at": closed_at,
            "closed": _closed(closed_at, buffer),
        }
    )


def _blob(blob: Consolidated | UnreadBlob | None) -> dict[str, object]:
    if isinstance(blob, UnreadBlob):
        return {}
    return {
        "blob": blob.content if blob else None,
        "blob_version": blob.version if blob else 0,
        "pins": blob.pins if blob else (),
        "consolidated_at": _last_merged_at(blob) if blob else None,
        "blob_said_at": blob.said_at if blob else None,
    }


def _last_merged_at(blob: Consolidated) -> datetime | None:
    """Return the time of the newest version that a consolidation made; commands do not delay the next one."""
    times = [(blob.command, blob.last_consolidated_at)]
    times += [(version.command, version.consolidated_at) for version in blob.history]
    return next((at for command, at in times if command is None), None)


def recent_fact(fact: Fact) -> RecentFact:
    """Return a fact as a snapshot shows it."""
    return RecentFact(
        fact_id=fact.id,
        version=fact.version,
        content=fact.content,
        formed_at=fact.formed_at,
        valid_from=fact.valid_from,
        expires_at=fact.expires_at,
    )


def buffered(reflection: Reflection) -> BufferedReflection:
    """Return a reflection as a snapshot holds it."""
    return BufferedReflection(
        reflection_id=reflection.id,
        content=reflection.content,
        formed_at=reflection.formed_at,
        said_at=reflection.said_at,
        private=reflection.private,
        version=reflection.version,
        position=reflection.position,
    )


def _first(batch: ScopeBatch) -> Snapshot:
    scope = batch.scope
    assert scope is not None
    return Snapshot(
        _id=batch.key,
        **scope_fields(scope),
        session_id=scope.session_id,
        audience=scope.audience,
        revision=0,
        changed_at=batch.time,
    )


def _recent(base: Snapshot, stored: StoredScope, facts: Mapping[str, Fact]) -> tuple[RecentFact, ...]:
    touched = {*facts, *stored.facts}
    known = {fact.fact_id: fact for fact in (*base.recent_facts, *stored.other_facts)}
    found: list[tuple[str, datetime, RecentFact | Fact]] = [
        (fact.fact_id, fact.valid_from, fact) for name, fact in known.items() if name not in touched
    ]
    found += [(fact.id, fact.valid_from, fact) for fact in facts.values() if fact.active]
    found.sort(key=itemgetter(0))
    found.sort(key=itemgetter(1), reverse=True)
    newest = (fact for _, _, fact in found[:RECENT_FACTS])
    return tuple(recent_fact(fact) if isinstance(fact, Fact) else fact for fact in newest)


def _lasting(base: Snapshot, stored: StoredScope, facts: Mapping[str, Fact]) -> tuple[RecentFact, ...]:
    """Return the lasting facts of a user; other scopes have none."""
    if base.scope != "user":
        return ()
    touched = {*facts, *stored.facts}
    known = {fact.fact_id: fact for fact in (*base.lasting_facts, *stored.other_lasting)}
    found = [fact for name, fact in known.items() if name not in touched]
    found += [recent_fact(fact) for fact in facts.values() if fact.active]
    return tuple(lasting(found)[:LASTING_FACTS])


def _buffer(
    base: Snapshot, stored: StoredScope, reflections: Mapping[str, Reflection]
) -> tuple[BufferedReflection, ...]:
    touched = {*reflections, *stored.reflections}
    known = {reflection.reflection_id: reflection for reflection in (*base.buffer, *stored.other_reflections)}
    found = [buffered_reflection for name, buffered_reflection in known.items() if name not in touched]
    found += [buffered(reflection) for reflection in reflections.values() if _waits(reflection)]
    return tuple(oldest_first(found)[:BUFFER])


def _waits(reflection: Reflection) -> bool:
    """Return whether a reflection is in the buffer."""
    return not reflection.absorbed and reflection.retired_at is None


def _active(facts: Iterable[Fact]) -> int:
    return sum(fact.active for fact in facts)


def _closed(closed_at: datetime | None, buffer: tuple[BufferedReflection, ...]) -> bool:
    """Return whether an ended session still has reflections in the buffer that were formed up to its end."""
    return closed_at is not None and any(reflection.formed_at <= closed_at for reflection in buffer)


def oldest_first(buffer: Iterable[BufferedReflection]) -> list[BufferedReflection]:
    """Return the reflections in the order in which they were said, not formed."""
    return sorted(
        buffer,
        key=lambda reflection: (
            reflection.said_at,
            reflection.formed_at,
            reflection.position,
            reflection.reflection_id,
        ),
    )


def newest_buffered(buffer: Iterable[BufferedReflection], threshold: int) -> list[BufferedReflection]:
    """Return the reflections that prompts show of a buffer, oldest first."""
    return oldest_first(buffer)[-SHOWN_OF_A_BUFFER * threshold :]


def last_formed(buffer: Iterable[BufferedReflection]) -> datetime | None:
    """Return when the last of them was formed; None if there is none."""
    return max((reflection.formed_at for reflection in buffer), default=None)


def scope_of(snapshot: Snapshot) -> Scope:
    """Return the scope of a snapshot."""
    return Scope.of_key(snapshot.scope_key, snapshot.agent_id, snapshot.audience)


def scope_changed(snapshot: Snapshot, changed: tuple[Part, ...]) -> ScopeChanged:
    """Return the announcement of a snapshot's revision, in which these parts changed."""
    return ScopeChanged(
        scope=scope_of(snapshot),
        revision=snapshot.revision,
        changed=changed,
        applied=snapshot.applied,
        active_facts=snapshot.active_facts,
        buffered=len(snapshot.buffer),
        newest_buffered_at=last_formed(snapshot.buffer),
        blob_version=snapshot.blob_version,
        consolidated_at=snapshot.consolidated_at,
        closed=snapshot.closed,
        committed_at=snapshot.changed_at,
    )


class Snapshots(Protocol):
    """Reader of snapshots, which hold the memory of a scope in one document."""

    async def snapshots(self, scope_keys: Iterable[str]) -> dict[str, Snapshot]:
        """Return the snapshots that exist, majority-committed, in one query."""
        ...

    async def without_users(self, scope_keys: Iterable[str], private: Collection[str]) -> dict[str, Snapshot]:
        """Return the same, the `private` ones without memory from users' messages (eden_memory.access.visible)."""
        ...


_HEALTH = (
    r"vegetarian|vegetariano|végétarien|vegetarier|\b(?:vegan|gluten|glutine|\d+ ?mg|medication|medikament|"
    r"does(?: not|n't) eat|isst kein|no come|ne mange pas|non mangia|não come)",
    r"allerg|alerg|alérg|intoleran|intolleran|unverträglich|\b(?:anaphyla|epipen|asthma|asma|diabet|epilep|"
    r"epiles|celiac|coeliac|celíac|celiach|cœliaque|zöliakie|pregnan|schwanger|embaraz|enceinte|incinta|grávida|"
    r"pacemaker|blood (?:type|group)|blutgruppe|grupo sangu|groupe sanguin|gruppo sangu)",
    r"过敏|過敏|糖尿病|哮喘|怀孕|喘息|アレルギ|妊娠|血液型|血型|알레르기|알러지|당뇨|천식|임신|แพ้|เบาหวาน|หอบหืด|ตั้งครรภ์|حساسي|السكري|الربو|حامل",
)
_LIFE = (
    # family
    r"\b(?:wife|husband|spouse|partner|fianc\w+|married|engaged to|divorced|widow\w*|daughters?|"
    r"(?:'s|his|her|their|an?|two|three|older|younger|eldest|youngest) sons?|"
    r"child|children|kids|"
    r"mother|father|mum|mom|dad|parents|brothers?|sisters?|siblings?|grand(?:mother|father|son|daughter)|family)\b",
    r"\b(?:ehefrau|ehemann|verheiratet|geschieden|verlobt|sohn|tochter|töchter|söhne|kinder|(?-i:Kind)|mutter|vater|eltern|"
    r"bruder|schwester|familie|esposa|marido|casad[oa]|hij[oa]s?|madre|padre|hermano|hermana|familia|femme|"
    r"mari|mariée?|fils|fille|enfants?|mère|père|frère|sœur|famille|moglie|marito|sposat[oa]|figli[oa]?|"
    r"fratello|sorella|famiglia|mulher|filh[oa]s?|mãe|pai|irmão|irmã|família)\b",
    r"妻子|丈夫|儿子|女儿|孩子|母亲|父亲|妈妈|爸爸|哥哥|姐姐|弟弟|妹妹|结婚|家人|の(?:夫|妻|息子|娘|母|父|兄|姉|弟|妹)|子供|結婚|家族|"
    r"아내|남편|아들|딸|아이(?:가|는|들|를)|어머니|아버지|형제|자매|결혼|가족|ภรรยา|สามี|ลูกชาย|ลูกสาว|แม่|พ่อ|แต่งงาน|ครอบครัว|"
    r"زوجت|زوج|ابن|ابنة|والد|شقيق|أخته|متزوج|عائلة",
    # names and birth
    r"\b(?:(?:is|are) (?:called|named)|name is|birthday|born (?:on|in)|heißt|geboren|geburtstag|se llama|nació|"
    r"cumpleaños|s'appelle|née? (?:le|en)|anniversaire|si chiama|nat[oa] (?:il|a|nel)|compleanno|chama-se|nasceu|"
    r"aniversário)\b",
    r"名字|生日|出生|名前|誕生日|生まれ|이름|생일|태어|ชื่อ|วันเกิด|اسمه|اسمها|عيد ميلاد|ولد",
    # home and work
    r"\b(?:lives? (?:in|at|with)|home is|home address|moved to (?!\w+day\b)(?-i:[A-Z])[\w-]+|"
    r"wohnt|zuhause|umgezogen|vive en|viv[eo] (?:a|em)|"
    r"habite|abita|mora em|works? (?:as|at|for|in)|employ(?:ed|er)|profession|job|arbeitet|beruf|arbeitgeber|"
    r"trabaja|trabajo|travaille|emploi|métier|lavora|lavoro|trabalha|emprego)\b",
    r"住在|家住|工作|职业|住んで|仕事|勤め|働いて|살고|살아|직업|근무|일하|อาศัย|ทำงาน|อาชีพ|يسكن|تسكن|يعيش|تعيش|يعمل|تعمل|وظيف",
)
_KINDS = tuple(re.compile("|".join(words), re.IGNORECASE) for words in (_HEALTH, _LIFE))


class _FactText(Protocol):
    @property
    def fact_id(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def valid_from(self) -> datetime: ...


F = TypeVar("F", bound=_FactText)


def lasting(facts: Iterable[F]) -> list[F]:
    """Return the lasting facts: those about health first, then the others, of each the newest first."""
    found = [(kind, fact) for fact in facts if (kind := _kind(fact.content)) is not None]
    found.sort(key=lambda one: one[1].fact_id)
    found.sort(key=lambda one: one[1].valid_from, reverse=True)
    found.sort(key=lambda one: one[0])
    return [fact for _, fact in found]


def _kind(text: str) -> int | None:
    return next((number for number, words in enumerate(_KINDS) if words.search(text)), None)
