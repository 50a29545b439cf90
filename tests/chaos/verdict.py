"""What must hold after any faults, as pure functions over what is in MongoDB and what was seen in Kafka.

Each returns one line a violation, with the key to look for; an empty list is a pass.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eden_memory.stages.publishing import partition_for
from tests.chaos.seen import Seen


@dataclass(frozen=True)
class Truth:
    """What the application wrote; every id in its typed text.

    `documents` (and `added`, the texts given through the inbox): id → (session, text) as they stand at the
    end. `written`: every message id ever inserted. `order`: per session the ids of messages that had text at once
    and of control documents, in the order in which they were inserted.
    """

    partitions: int
    documents: Mapping[str, tuple[str, str]]
    added: Mapping[str, tuple[str, str]]
    written: frozenset[str]
    order: Mapping[str, Sequence[str]]
    left_in_inbox: Sequence[str] = field(default_factory=tuple[str, ...])

    def home(self, session: str) -> int:
        """The partition of a session."""
        return partition_for(session.encode(), self.partitions)


REQUEST = "/inbox/"
"""In the ids of records that follow from an inbox document."""
Places = dict[str, dict[int, Seen]]
"""key → partition → the last record there."""


def last_records(records: Iterable[Seen]) -> Places:
    """The last record of every message in every partition where it has one."""
    places: Places = {}
    for one in records:
        if one.kind in ("message", "ended"):
            places.setdefault(one.key, {})[one.partition] = one
    return places


def missing(truth: Truth, records: Iterable[Seen]) -> list[str]:
    """Messages with text that exist and have no record in the partition of their session."""
    places = last_records(records)
    return [
        f"{key} of session {session} has no record in partition {truth.home(session)}"
        for key, (session, text) in {**truth.documents, **truth.added}.items()
        if text and truth.home(session) not in places.get(key, {})
    ]


def wrong(truth: Truth, records: Iterable[Seen]) -> list[str]:
    """Keys whose last record is not what MongoDB holds: other content, or not ended where they must be."""
    expected = {**truth.documents, **truth.added}
    found: list[str] = []
    for key, places in last_records(records).items():
        if key not in expected and key not in truth.written:
            found.append(f"{key} was never written")
        for partition, last in places.items():
            found += _wrong(truth, key, partition, last, expected.get(key))
    return found


def _wrong(truth: Truth, key: str, partition: int, last: Seen, wanted: tuple[str, str] | None) -> list[str]:
    where = f"{key} in partition {partition}, offset {last.offset} (version {last.version})"
    if wanted is None or truth.home(wanted[0]) != partition:
        return [] if last.kind == "ended" else [f"{where}: stands there and should be ended"]
    session, text = wanted
    if last.kind == "ended":
        return [f"{where}: ended ({last.reason}) but exists"] if text else []
    if (last.session, last.text) == (session, text):
        return []
    return [f"{where}: holds {last.text[:60]!r} of {last.session}, not {text[:60]!r} of {session}"]


def shared_ids(records: Iterable[Seen]) -> list[str]:
    """Events that say different things under one id and source: a reader drops the second as a repeat.

    A redelivered update tells of the document as it stands by then; that is right where a later change of the same
    message has a record of its own. A request that is read off the inbox has the version of that reading, and the
    stream may bring it again with its own (docs/tailer.md, four phases).
    """
    ones = list(records)
    newest: dict[str, str] = {}
    for one in ones:
        newest[one.key] = max(one.version, newest.get(one.key, ""))
    first: dict[str, Seen] = {}
    found: list[str] = []
    for one in ones:
        other = first.setdefault(one.id, one)
        if _said(one) != _said(other) and not _looked_up_later(other, one, newest[one.key]):
            found.append(
                f"{one.id} is {_said(other)} and {_said(one)}, offsets {other.offset} and {one.offset}"
            )
    return found


def _looked_up_later(one: Seen, again: Seen, newest: str) -> bool:
    same = one.key == again.key and one.version == again.version < newest
    return same and one.kind == again.kind == "message"


def _said(one: Seen) -> tuple[str, ...]:
    version = "" if REQUEST in one.id else one.version
    return one.kind, version, one.session, one.reason, one.key, one.text


def unlike_what_is_kept(truth: Truth, records: Iterable[Seen]) -> list[str]:
    """What a stage would have wrong: it drops repeated ids, and what is older than what it knows of a message."""
    kept = _kept(records)
    return missing(truth, kept) + wrong(truth, kept)


def _kept(records: Iterable[Seen]) -> list[Seen]:
    known: set[tuple[int, str]] = set()
    newest: dict[tuple[int, str], str] = {}
    found: list[Seen] = []
    for one in records:
        place = one.partition, one.key
        if (one.partition, one.id) in known or one.version < newest.get(place, ""):
            continue
        known.add((one.partition, one.id))
        newest[place] = one.version
        found.append(one)
    return found


def never_arrived(truth: Truth, records: Iterable[Seen]) -> list[str]:
    """Messages and control documents that never came, not even those ended since."""
    came = {one.key for one in records if one.kind in ("message", "control")}
    wanted = [key for keys in truth.order.values() for key in keys] + list(truth.added)
    return [f"{key} never arrived" for key in wanted if key not in came]


def reordered(truth: Truth, records: Iterable[Seen], *, merged: bool = False) -> list[str]:
    """Pairs of one session whose first arrivals are not in the order of insertion.

    A merge (`merged`) brings the inbox after every message that it read: a control may come later than it was asked,
    and before messages that the stream brings, if its version is above theirs. And it brings what stands in the
    collection: a message that came and went since the merge's beginning comes later, with the stream, to be ended at
    once.
    """
    first: dict[str, Seen] = {}
    for one in records:
        if one.kind in ("message", "control"):
            first.setdefault(one.key, one)
    found: list[str] = []
    for session, keys in truth.order.items():
        arrivals = [first[key] for key in keys if key in first and first[key].session == session]
        if merged:
            arrivals = [one for one in arrivals if one.kind == "control" or one.key in truth.documents]
        found += [
            f"session {session}: {earlier.key} (offset {earlier.offset}) was written before "
            f"{later.key} (offset {later.offset})"
            for earlier, later in _inversions(arrivals, merged=merged)
        ]
    return found


def _inversions(arrivals: Iterable[Seen], *, merged: bool) -> Iterator[tuple[Seen, Seen]]:
    """Each arrival that one written before it comes after."""
    latest: Seen | None = None
    for one in arrivals:
        covered = merged and one.kind == "control" and latest is not None and latest.version <= one.version
        if latest is not None and latest.offset > one.offset and not covered:
            yield latest, one
        elif not (merged and one.kind == "control"):
            latest = one


def cluster_time(version: str) -> str:
    """A version without the position in its transaction: a watermark is about all of one time."""
    return version.partition(".")[0]


def broken_promises(records: Iterable[Seen]) -> list[str]:
    """Records that say something new of a time that a watermark of their partition had declared published."""
    promised: dict[int, str] = {}
    newest: dict[str, str] = {}
    found: list[str] = []
    for one in records:
        if one.kind == "watermark":
            promised[one.partition] = max(one.version, promised.get(one.partition, ""))
            continue
        known = newest.get(one.key, "")
        if known < one.version and cluster_time(one.version) <= promised.get(one.partition, ""):
            found.append(
                f"{one.key} at {one.version} came to partition {one.partition}, offset {one.offset}, "
                f"after the watermark {promised[one.partition]}"
            )
        newest[one.key] = max(known, one.version)
    return found


def repeats(records: Iterable[Seen]) -> int:
    """How many records came again: same key, version and partition."""
    kinds = [(one.key, one.version, one.partition, one.kind) for one in records if one.kind != "watermark"]
    return len(kinds) - len(set(kinds))
