"""An import from an earlier system: its memory is written to an export file, which is imported; the rest by commands.

The file stands in the local folder until it is imported. A command that was killed goes on with it, whatever the
source has become meanwhile: what was published stays as it was.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from types import TracebackType
from typing import Self

from eden_memory.directory.directory_store import MongoDirectory
from eden_memory.errors import EdenError
from eden_memory.files.earlier_records import EarlierReader, EarlierRecords
from eden_memory.files.import_items import Entry, ImportedAs, ImportedItem
from eden_memory.files.import_store import MongoImports
from eden_memory.files.importing import LOOK_SECONDS, ForeignImport, Progress
from eden_memory.files.record_import import ExportImport, OwnImportReport
from eden_memory.memory.memory_index_store import refuse_foreign
from eden_memory.replay.installation import Installation
from eden_memory.schemas.documents import Stream

WRITTEN_SECONDS = 10.0
"""How long to wait for a further fact to be stored, before its count of accesses is left out."""

AccessReader = Callable[[str, ImportedAs], AsyncIterator[Mapping[str, tuple[int, datetime]]]]

TEAM = (
    "shards go on collecting from sessions with users: their streams say sharing=team, which counts where "
    "EDEN_MEMORY_SHARING is agents or team"
)

UNFINISHED = (
    "this finishes an import that was stopped; repeat the command for what the source has gained since"
)


@dataclass
class EarlierImport:
    """One import of the database at `path`; a context manager that removes what it wrote and did not need."""

    at: Installation
    reader: EarlierReader
    path: str
    to: ImportedAs
    accesses: AccessReader | None = None
    _records: EarlierRecords = field(init=False)
    _export: ExportImport = field(init=False)
    _store: MongoImports = field(init=False)

    def __post_init__(self) -> None:
        settings = self.at.settings
        named = (self.to.source, self.path, settings.mongodb.database, self.at.prefix, repr(self.to.mapping))
        name = blake2b("\x00".join(named).encode(), digest_size=8).hexdigest()
        folder = settings.local.folder / "imports"
        self._unfinished, self._new = (folder / f"{name}.{end}" for end in ("unfinished", "new"))
        self._records = EarlierRecords(self.to, settings.limits.formation())
        self._store = MongoImports(self.at)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._new.unlink(missing_ok=True)

    async def survey(self, on_progress: Progress) -> OwnImportReport:
        """Return what would be taken; writes nothing to memory."""
        settings = self.at.settings
        await refuse_foreign(self.at.database, settings.names)
        directory = MongoDirectory(
            self.at.source, self.at.database[settings.names[Stream.COLLECTION]], settings
        )
        items = self.reader(self.path, self.to, directory)
        file = self._unfinished if self._unfinished.exists() else self._new
        if file == self._new:
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.unlink(missing_ok=True)
            except OSError as error:
                what = f"{file.parent} cannot be written: {error.strerror}"
                raise EdenError(what, "Name another folder: EDEN_LOCAL_FOLDER.") from None
            await self._records.write(items, file)
        else:
            await self._records.read(items)
        self._export = ExportImport(self.at, file, self.to, by_id=True)
        report = await self._export.survey(on_progress)
        report.add(await self._rest().survey(on_progress))
        return self._noted(report)

    async def run(self, whole: int, on_progress: Progress) -> OwnImportReport:
        """Import what `survey` found, or the rest of it."""
        if not self._unfinished.exists():
            self._new.rename(self._unfinished)
        self._export.path = self._unfinished
        for (agent, scope), words in self._records.words.items():
            await self._store.raise_words(agent, scope, words)
        report = await self._export.run(whole, on_progress)
        report.add(await self._rest().run(whole, on_progress))
        if self.accesses is not None:
            await self._count_accesses(self.accesses(self.path, self.to))
        self._noted(report)
        self._unfinished.unlink()
        return report

    def _rest(self) -> ForeignImport:
        async def read(_path: str, _to: ImportedAs) -> AsyncIterator[Entry]:
            for entry in self._records.rest:
                yield entry

        return ForeignImport(self.at, read, self.path, replace(self.to))

    def _noted(self, report: OwnImportReport) -> OwnImportReport:
        """Say what else the import changes."""
        rest = (entry for entry in self._records.rest if isinstance(entry, ImportedItem))
        if any(isinstance(item.request, Stream) and item.request.sharing == "team" for item in rest):
            report.notes.append(TEAM)
        for (_, scope), words in sorted(self._records.words.items()):
            report.notes.append(
                f"the texts of a {scope} may have {words:,} words from now on, as one of them has"
            )
        report.unfinished = self._unfinished.exists()
        if report.unfinished and not report.taken:
            report.notes.append(UNFINISHED)
        return report

    async def _count_accesses(self, pages: AsyncIterator[Mapping[str, tuple[int, datetime]]]) -> None:
        """Store how often facts were found, as soon as memory has written them; forgotten ones it never does."""
        patience = WRITTEN_SECONDS
        async for page in pages:
            moved, before = time.monotonic(), -1
            while (here := await self._store.count_accesses(page)) < len(page):
                if here > before:
                    moved, before = time.monotonic(), here
                elif time.monotonic() - moved > patience:
                    patience = (
                        LOOK_SECONDS  # what is missing is no record here: later pages need not wait as long
                    )
                    break
                await asyncio.sleep(LOOK_SECONDS)
