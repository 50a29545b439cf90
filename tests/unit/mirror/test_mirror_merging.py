"""The merge of a file with its memory, against every order of changes on both sides."""

from dataclasses import dataclass, field, replace
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.files.mirror_page import (
    BLOB,
    BaseItem,
    FileCommand,
    Merged,
    MirroredItem,
    MirrorLine,
    MirrorPage,
    PageMerge,
    SentCommand,
    digest_of,
    parsed,
    rendered,
)
from eden_memory.memory.memory_batch import fact_hash

KEY = "user:s.helper:s.ann"


@dataclass
class Lane:
    """Commands as the lane of the scope carries them out: in order, and only if the version still stands."""

    items: dict[str, MirroredItem] = field(default_factory=dict[str, MirroredItem])
    said: set[str] = field(default_factory=set[str])
    """Every text that was ever memory."""
    waiting: list[tuple[str, FileCommand]] = field(default_factory=list[tuple[str, FileCommand]])
    done: set[str] = field(default_factory=set[str])
    number: int = 0

    def put(self, item: MirroredItem) -> None:
        self.items[item.id] = item
        self.said.add(item.text)

    def form(self, text: str) -> None:
        same = [item for item in self.items.values() if fact_hash(item.text) == fact_hash(text)]
        self.said.add(text)
        if not same:
            self.number += 1
            self.put(MirroredItem("fact", f"f{self.number}", 1, text))

    def carry_out(self) -> None:
        request, command = self.waiting.pop(0)
        self.done.add(request)
        if command.action == "add":
            return self.form(command.text)
        item = self.items.get(command.id)
        if item is None or item.version != command.version:
            return None
        if command.action == "retire":
            del self.items[item.id]
        else:
            self.edit(item, command.text)
        return None

    def edit(self, item: MirroredItem, text: str) -> None:
        others = [one for one in self.items.values() if one.id != item.id]
        if any(fact_hash(one.text) == fact_hash(text) for one in others):
            self.said.add(text)
            del self.items[item.id]
        else:
            self.put(replace(item, version=item.version + 1, text=text))


@dataclass
class Folder:
    """The file, its bases and notes, as the mirror has them."""

    lane: Lane
    text: str | None = None
    bases: dict[str, dict[str, BaseItem]] = field(default_factory=dict[str, dict[str, BaseItem]])
    newest: str | None = None
    sent: dict[str, SentCommand] = field(default_factory=dict[str, SentCommand])
    requests: int = 0
    conflicts: set[str] = field(default_factory=set[str])

    def mirror(self) -> Merged:
        page = None if self.text is None else parsed(self.text)
        base = self.bases.get(page.base if page is not None else self.newest or "", {})
        memory = [MirroredItem("blob", BLOB, 0, ""), *self.lane.items.values()]
        merge = PageMerge(base, page, memory, self.sent, {})
        merged = merge.merged()
        added = [one for one in merged.commands if one.action == "add" and one.key in self.sent]
        refused = {one.refusal: "since" for one in added if self.sent[one.key].request in self.lane.done}
        merged = replace(merge, refused=refused).merged()
        for command in merged.commands:
            if command.key not in self.sent:
                self.requests += 1
                digest = "" if command.action == "retire" else digest_of(command.text)
                self.sent[command.key] = SentCommand(command.version, digest, str(self.requests))
                self.lane.waiting.append((str(self.requests), command))
        self.conflicts |= {conflict.text for conflict in merged.conflicts}
        stamp = sha256(merged.told.encode()).hexdigest()
        before, self.text = self.text, rendered(MirrorPage(KEY, stamp, merged.lines))
        lost = texts_of(before) - texts_of(self.text) - self.lane.said - self.conflicts
        assert not lost, "the mirror took from the file what is nowhere else"
        self.bases[stamp], self.newest = merged.base, stamp
        keep = {one.key for one in merged.commands} | {f"{one.id}@{one.version}" for one in memory}
        self.sent = {key: one for key, one in self.sent.items() if key in keep}
        return merged

    def write(self, change: str, place: int, text: str) -> None:
        page = parsed(self.text or "")
        assert page is not None
        facts = [line for line in page.lines if line.kind == "fact"]
        rest = [line for line in page.lines if line.kind != "fact"]
        if change == "add":
            facts.append(MirrorLine("fact", None, text))
        elif facts and change == "edit":
            facts[place % len(facts)] = replace(facts[place % len(facts)], text=text)
        elif facts:
            facts.pop(place % len(facts))
        self.text = rendered(replace(page, lines=(*rest, *facts)))


FILE = ("add", "edit", "delete", "open", "save")
MEMORY = ("lane", "form", "their edit", "their retire")
STEPS = st.tuples(st.sampled_from(["mirror", "mirror", *FILE, *MEMORY]), st.integers(0, 5))


@given(st.lists(STEPS, max_size=40))
def test_both_sides_meet_and_nothing_is_lost(steps: list[tuple[str, int]]) -> None:
    lane = Lane()
    folder = Folder(lane)
    folder.mirror()
    opened = folder.text
    for number, (step, place) in enumerate(steps):
        text = f"Statement {number}."
        items = list(lane.items.values())
        if step == "mirror":
            folder.mirror()
        elif step == "lane" and lane.waiting:
            lane.carry_out()
        elif step in ("add", "edit", "delete"):
            folder.write(step, place, text)
        elif step == "form":
            lane.form(text)
        elif step == "their edit" and items:
            lane.edit(items[place % len(items)], text)
        elif step == "their retire" and items:
            del lane.items[items[place % len(items)].id]
        elif step == "open":
            opened = folder.text
        elif step == "save":
            folder.text = opened
    for _ in range(8):
        folder.mirror()
        while lane.waiting:
            lane.carry_out()
    before = folder.text
    merged = folder.mirror()
    assert (merged.commands, merged.conflicts, folder.text) == ([], [], before), "a loop"
    assert texts_of(folder.text) == {item.text for item in lane.items.values()}


def texts_of(text: str | None) -> set[str]:
    """The facts of a file."""
    page = parsed(text or "")
    return {line.text for line in page.lines if line.kind == "fact"} if page is not None else set()
