"""The words of one scope's facts, ranked by BM25 (tantivy, in memory): stemmed, with typos and parts of compounds.

A scope has an index of its own: what another scope holds is not in it. Where several are searched together, how
rare a word is is counted over all of them, so that their scores can be compared.
"""

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import log
from typing import cast

from tantivy import (
    Document,
    Filter,
    Index,
    Occur,
    Query,
    Schema,
    SchemaBuilder,
    Searcher,
    TextAnalyzer,
    TextAnalyzerBuilder,
    Tokenizer,
)

_ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670]")
"""Accents of Latin, Greek and Cyrillic; points of Hebrew; vowels and hamzas of Arabic."""

_UNSEEN = re.compile("[\u00ad\u0640\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
"""Soft hyphens, Arabic stretching, joiners, and direction marks."""

_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "æ": "ae", "œ": "oe", "þ": "th", "\u0131": "i", "ħ": "h"}
    | {"\u0649": "\u064a", "\u0629": "\u0647", "\u06cc": "\u064a", "\u06a9": "\u0643"}
)
"""Letters with two spellings that Unicode does not decompose into a letter and an accent."""

_ARABIC_ARTICLE = re.compile("^[\u0648\u0641\u0628\u0643]?\u0627\u0644(?=\\w{2})")

_ENGLISH_S = re.compile(r"'s(?<=\w's)\b")

_BREAKS = {code: " " for code in range(128) if not chr(code).isalnum()}

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese; and Korean, whose endings stand on the words."""

_RUNS = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")

_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")

BEGINNING = 40
"""Characters at the beginning of a text that are searched for its first word."""

LONGEST = 100
"""Characters of a word that are compared."""

COMPOUND, PART, PART_BESIDE = 9, 5, 3

"""Least letters of a compound, of a part that is looked for, and of the rest beside it."""


def folded(text: str) -> str:
    """Unify compatibility forms, case and accents; keep vowel signs of Indic scripts."""
    if text.isascii():
        return text.lower()
    plain = _UNSEEN.sub("", unicodedata.normalize("NFKC", text)).casefold()
    bare = _ACCENTS.sub("", unicodedata.normalize("NFD", plain))
    return unicodedata.normalize("NFC", bare).translate(_LETTERS)


def words_of(text: str) -> list[str]:
    """Return the words by which a text is found, in order."""
    words = _split(text)
    if text.isascii():
        return [word[:LONGEST] for word in words] if len(text) > LONGEST else words
    return [part for word in words for part in _parts(word, single=True)]


def words_asked(text: str) -> list[str]:
    """Return the words of a query, each once; of a longer run without spaces only its pairs."""
    return list(dict.fromkeys(part for word in _split(text) for part in _parts(word, single=False)))


def first_word_of(text: str) -> str | None:
    """The word that a text begins with, as a query has it: of a run without spaces its first pair."""
    words = _split(text[:BEGINNING])
    return next(_parts(words[0], single=False), None) if words else None


def ends_of(word: str) -> Iterator[str]:
    """Return the beginnings and ends of a long word, as possible parts of a compound."""
    if len(word) >= COMPOUND and spaced(word):
        for length in range(PART, len(word) - PART_BESIDE + 1):
            yield word[:length]
            yield word[-length:]


def spaced(word: str) -> bool:
    """Whether a word is of a script with spaces: only there can a typo be told from another word."""
    return not _IS_UNSPACED.search(word)


def _split(text: str) -> list[str]:
    plain = _ENGLISH_S.sub("", folded(text).replace("\u2019", "'"))
    return plain.translate(_BREAKS).split() if plain.isascii() else _word().findall(plain)


def _parts(word: str, *, single: bool) -> Iterator[str]:
    if word.isascii():
        yield word[:LONGEST]
        return
    for run in _RUNS.findall(word):
        if spaced(run):
            yield _ARABIC_ARTICLE.sub("", run)[:LONGEST]
            continue
        if single or len(run) == 1:
            yield from run
        yield from (run[at : at + 2] for at in range(len(run) - 1))


@cache
def _word() -> re.Pattern[str]:
    """Match letters, digits and the marks that belong to them, which `\\w` leaves out."""
    marks = "".join(
        character
        for character in map(chr, range(0x0300, min(sys.maxunicode, 0xFFFF)))
        if unicodedata.category(character) in {"Mn", "Mc"}
    )
    return re.compile(f"(?:[^\\W_]|[{re.escape(marks)}])+")


HEAP, MANY_HEAP = 15_000_000, 200_000_000

"""Bytes that a write may take: the least that tantivy allows, and for many facts enough for one segment."""

MANY = 3_000
"""Facts in a write from which it counts as large."""

MOST_WORDS = 48
"""Most words of a query."""

ONE_TYPO, TWO_TYPOS = 4, 8

"""Least characters of an unknown word that may match words with one or two typos."""

ONE_WEIGHT, TWO_WEIGHT = 0.7, 0.4

"""Weight of a match with one or two typos, as a share of the weight of a word that only one fact has."""

COMPOUND_WEIGHT = 0.5
"""Weight of a word that begins or ends another one, as a share of its rarity."""

ASKING: str = (
    "about am any been can could did do does doing for from had has have he her hers him his how i if in into is it "
    "its me my of on or our ours she should so some than that their them they this those us was we were what when "
    "where which who whom whose why with would you your yours"
)
"""Question words, beside Lucene's stop words: they say nothing about what is asked for."""

ROW_BYTES = 136
"""Approximate bytes of a fact in the index, beside its words."""

INDEX_BYTES = 45_000
"""Approximate bytes of an index beside its facts: its files have room to spare (measured after ten writes)."""


@dataclass(frozen=True, slots=True)
class AskedWord:
    """A word of a query."""

    word: str
    stem: str


@dataclass(frozen=True, slots=True)
class Rarity:
    """How many facts there are, and how many have each stem, over all scopes that are searched together."""

    facts: int
    having: Mapping[str, int]
    compounds: Mapping[str, int] = field(default_factory=dict[str, int])
    """In how many facts a word begins or ends a longer one."""

    def weight(self, stem: str) -> float:
        """Return BM25's inverse document frequency."""
        return _rarity(self.facts, self.having.get(stem, 0))


@dataclass(frozen=True, slots=True)
class IndexWrites:
    """Texts by number that a write adds, and numbers that it removes."""

    added: Mapping[int, str]
    removed: Sequence[int]


class TextIndex:
    """Facts by their words. Writes are collected, and take effect together with :meth:`take` and :meth:`write`."""

    def __init__(self) -> None:
        self._index = Index(_schema())
        self._index.register_tokenizer("stems", _analyzer("stems"))
        self._index.register_tokenizer("words", _analyzer("words"))
        # by itself it would read each commit, too: whoever finds its lock taken waits 100 ms before trying again
        self._index.config_reader("manual")
        self._searcher: Searcher = self._index.searcher()
        self._number_of: dict[str, int] = {}
        self._id_of: dict[int, str] = {}
        self._next = 0
        self._removed: list[int] = []
        self._replaced: dict[str, list[int]] = {}
        """Earlier numbers of facts: their ids are known until they have left the index."""
        self._leaving = 0
        """Facts that are still in the index but must not be found; that many more are asked for."""
        self._added: dict[int, str] = {}
        self._characters = 0

    @property
    def size(self) -> int:
        """Its approximate size in memory, in bytes."""
        return 2 * self._characters + ROW_BYTES * len(self._id_of) + INDEX_BYTES

    @property
    def waiting(self) -> bool:
        """Whether anything waits to be written."""
        return bool(self._added or self._removed)

    def put(self, fact_id: str, text: str) -> None:
        """Add or replace a fact; the old text is found until the new one is written."""
        old = self._number_of.get(fact_id)
        if old is not None and self._added.pop(old, None) is not None:
            del self._id_of[old]
        elif old is not None:
            self._removed.append(old)
            self._replaced.setdefault(fact_id, []).append(old)
        number = self._next = self._next + 1
        self._number_of[fact_id], self._id_of[number] = number, fact_id
        self._added[number] = text
        self._characters += len(text)

    def remove(self, fact_id: str) -> None:
        """Remove a fact if it is there; it is not found from now on, written or not."""
        number = self._number_of.pop(fact_id, None)
        if number is None:
            return
        for gone in (number, *self._replaced.pop(fact_id, [])):
            self._id_of.pop(gone, None)
        if self._added.pop(number, None) is None:
            self._removed.append(number)

    def take(self) -> IndexWrites:
        """Take the pending writes; later ones wait for the next call."""
        writes = IndexWrites(self._added, self._removed)
        self._added, self._removed, self._leaving = {}, [], len(writes.removed)
        return writes

    def write(self, writes: IndexWrites) -> None:
        """Make what was taken findable; blocks for milliseconds: not for an event loop. One at a time, and
        :meth:`written` after it.

        If it fails, the index is not to be used any more.
        """
        writer = self._index.writer(MANY_HEAP if len(writes.added) > MANY else HEAP, 1)
        for number in writes.removed:
            writer.delete_documents_by_query(Query.term_query(_schema(), "number", number))
        for number, text in writes.added.items():
            writer.add_document(_document(number, text))
        writer.commit()
        writer.wait_merging_threads()
        self._index.reload()
        self._searcher, self._leaving = self._index.searcher(), 0

    def written(self, writes: IndexWrites) -> None:
        """Where `put` and `remove` are called: a write has ended."""
        for number in writes.removed:
            fact_id = self._id_of.pop(number, None)
            if fact_id is not None and (earlier := self._replaced.get(fact_id)):
                earlier.remove(number)

    def rarity(self, words: Iterable[AskedWord]) -> Rarity:
        """Of this scope's facts alone; facts that were taken out may still be counted."""
        facts, words = self._searcher.num_docs, list(words)
        having = {word.stem: self._having("stems", word.stem) for word in words}
        compounds = {word.word: self._having("ends", word.word) for word in words}
        for word in words:
            if not having[word.stem] and not compounds[word.word]:
                having |= self._parts(word)
        return Rarity(facts, having, compounds)

    def _having(self, of: str, term: str) -> int:
        return min(self._searcher.doc_freq(of, term), self._searcher.num_docs)

    def _parts(self, word: AskedWord) -> dict[str, int]:
        """Return the known stems with which an unknown compound begins or ends."""
        counts = {part: self._having("stems", part) for part in ends_of(word.word)}
        return {part: count for part, count in counts.items() if count}

    def search(self, words: Sequence[AskedWord], rarity: Rarity, most: int) -> list[tuple[str, float]]:
        """At most `most` facts by score, best first; `rarity` is of all that is searched together."""
        own = self.rarity(words)
        parts = [part for word in words if (part := _part(word, own, rarity)) is not None]
        if not parts or not own.facts:
            return []
        asked = Query.boolean_query([(Occur.Should, part) for part in parts])
        searcher, beside = self._searcher, len(self._removed) + self._leaving
        hits = searcher.search(asked, most + beside, count=False).hits
        numbers = searcher.fast_field_values("number", [address for _, address in hits])
        pairs = zip(numbers, hits, strict=True)
        found = [(self._id_of.get(cast("int", number)), score) for number, (score, _) in pairs]
        best: dict[str, float] = {}
        for fact_id, score in found:
            if fact_id is not None and score > best.get(fact_id, 0):
                best[fact_id] = score
        return sorted(best.items(), key=lambda item: (-item[1], item[0]))[:most]


def asked_words(query: str) -> list[AskedWord]:
    """Return the words by which a query is answered: without stop words, if any other is left."""
    words = words_asked(query)[:MOST_WORDS]
    telling = [word for word in words if _analyzer("telling").analyze(word)]
    return [AskedWord(word, _stem(word)) for word in telling or words]


def stems_asked(query: str) -> frozenset[str]:
    """Return the stems of these words."""
    return frozenset(word.stem for word in asked_words(query))


def stems_of(text: str) -> frozenset[str]:
    """Return a fact's words in the form in which they are compared with a query's."""
    return frozenset(map(_stem, words_of(text)))


def share_asked(asked: Iterable[Set[str]], stems: Set[str]) -> float:
    """Return the share of a query's words that are among these, for the query of which most are."""
    return max((len(words & stems) / len(words) for words in asked if words), default=0.0)


def first_stem(text: str) -> str | None:
    """Return the word with which a fact begins, in the form in which it is compared with a query's."""
    word = first_word_of(text)
    return None if word is None else _stem(word)


def together(rarities: Sequence[Rarity]) -> Rarity:
    """Of all of them."""
    having, compounds = Counter[str](), Counter[str]()
    for rarity in rarities:
        having.update(rarity.having)
        compounds.update(rarity.compounds)
    return Rarity(sum(rarity.facts for rarity in rarities), having, compounds)


def _part(asked_word: AskedWord, own: Rarity, rarity: Rarity) -> Query | None:
    ways = [*_as_it_is(asked_word.stem, own, rarity), *_in_compounds(asked_word, own, rarity)]
    if not rarity.having.get(asked_word.stem, 0):
        ways += _with_typos(asked_word.word, max(rarity.facts, 1))
    return Query.disjunction_max_query(ways) if len(ways) > 1 else next(iter(ways), None)


def _as_it_is(stem: str, own: Rarity, rarity: Rarity) -> list[Query]:
    if not own.having.get(stem, 0):
        return []
    factor = rarity.weight(stem) / own.weight(stem)
    return [Query.boost_query(Query.term_query(_schema(), "stems", stem, "freq"), factor)]


def _in_compounds(asked_word: AskedWord, own: Rarity, rarity: Rarity) -> list[Query]:
    """Find facts with a word that it begins or ends or, for an unknown compound, with its longest known part."""
    word, ways = asked_word.word, list[Query]()
    if own.compounds.get(word, 0):
        weight = COMPOUND_WEIGHT * _rarity(rarity.facts, rarity.compounds[word])
        ways.append(Query.const_score_query(Query.term_query(_schema(), "ends", word, "basic"), weight))
    elif not rarity.having.get(asked_word.stem, 0):
        known = sorted((part for part in ends_of(word) if part in own.having), key=len)
        for part in known[-1:]:
            weight = COMPOUND_WEIGHT * rarity.weight(part)
            ways.append(Query.const_score_query(Query.term_query(_schema(), "stems", part, "basic"), weight))
    return ways


def _with_typos(word: str, facts: int) -> list[Query]:
    if len(word) < ONE_TYPO or not spaced(word):
        return []
    rare = _rarity(facts, 1)
    meant = [Query.boost_query(_fuzzy(word, 1), ONE_WEIGHT * rare)]
    if len(word) >= TWO_TYPOS:
        meant.append(Query.boost_query(_fuzzy(word, 2), TWO_WEIGHT * rare))
    return meant


def _fuzzy(word: str, distance: int) -> Query:
    return Query.fuzzy_term_query(_schema(), "words", word, distance, transposition_cost_one=True)


def _rarity(facts: int, having: int) -> float:
    """ln(1 + (N - n + 0.5) / (n + 0.5)): Lucene's form, never negative."""
    return log(1 + (max(facts - having, 0) + 0.5) / (having + 0.5))


def _document(number: int, text: str) -> Document:
    split = words_of(text)
    words = " ".join(split)
    document = Document()
    document.add_unsigned("number", number)
    document.add_text("stems", words)
    document.add_text("words", words)
    document.add_text("ends", " ".join(part for word in split for part in ends_of(word)))
    return document


@lru_cache(20_000)
def _stem(word: str) -> str:
    return next(iter(_analyzer("stems").analyze(word)), word)


@cache
def _schema() -> Schema:
    builder = SchemaBuilder()
    builder.add_unsigned_field("number", stored=False, indexed=True, fast=True)
    builder.add_text_field("stems", stored=False, tokenizer_name="stems", index_option="freq")
    builder.add_text_field("words", stored=False, tokenizer_name="words", index_option="basic")
    builder.add_text_field("ends", stored=False, tokenizer_name="words", index_option="basic")
    return builder.build()


@cache
def _analyzer(name: str) -> TextAnalyzer:
    """`stems`, `words` as they are, `telling`: nothing of a word that says nothing."""
    builder = TextAnalyzerBuilder(Tokenizer.whitespace())
    if name == "stems":
        builder = builder.filter(Filter.stemmer("english"))
    if name == "telling":
        builder = builder.filter(Filter.stopword("english")).filter(Filter.custom_stopword(ASKING.split(" ")))
    return builder.build()
