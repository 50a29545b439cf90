"""docs/images/trace.svg: the trace of a chat message, from a real run (`make transcripts`)."""

import asyncio
import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

from rich.console import Console
from rich.text import Text

from eden_memory.mongo.ids import encode_id
from eden_memory.names import trace_id
from eden_memory.settings import OtelSettings
from eden_memory.telemetry.spans import exporting
from tests.conftest import _drop_databases, _drop_kafka  # pyright: ignore[reportPrivateUsage]
from tests.integration.replay.reform_kit import quiet
from tests.integration.system.conftest import namespaced
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import fast, system, until
from tests.model_server.serving import serving
from tests.otlp_collector import Collector, SeenSpan, collector
from tests.servers import Namespace, TestServers, running_servers

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "trace.svg"
COLUMNS, TREE, BAR = 118, 62, 36
KINDS = {3: "magenta", 4: "green", 5: "cyan"}
SAID = "fact user: Mara keeps seventeen beehives.\nnote user: Mara is proud of them."
NANOSECONDS = 1_000_000


def main() -> None:
    """Play it, and draw it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
        collector() as seen,
    ):
        mine = Namespace(f"trace{uuid4().hex[:8]}")
        try:
            trace = asyncio.run(_played(servers, mine, Path(folder), seen))
        finally:
            _drop_databases(servers, mine)
            _drop_kafka(servers, mine)
    spans = [span for span in seen.spans if span.trace == trace]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in drawn(spans, mine.topic_prefix):
        console.print(line, no_wrap=True, overflow="ellipsis")
    console.save_svg(str(PICTURE), title="one chat message, as a trace")


async def _played(servers: TestServers, mine: Namespace, folder: Path, seen: Collector) -> str:
    """One message in a session of one user, formed; the id of its trace."""
    async with serving(obey) as models:
        settings = fast(namespaced(servers, mine, folder), models)
        otel = OtelSettings(endpoint=seen.endpoint)  # pyright: ignore[reportCallIssue]
        chosen = settings.model_copy(update={"otel": otel})
        with exporting(chosen):
            async with system(chosen, models) as running:
                session = await running.session("mara")
                await running.write(session, "mara", SAID)
                await running.form(session)

                async def shown() -> bool:
                    context = await running.service.get_memory_context(session, "mara", None)
                    return "beehives" in context

                await until(shown, "the context to show what was said")
                await quiet(running)
        return trace_id(encode_id(session))


def drawn(spans: Sequence[SeenSpan], prefix: str) -> list[Text]:
    """One line for each span: the tree, when it ran, and for how long."""
    first, last = min(span.started for span in spans), max(span.ended for span in spans)
    lines = [Text(f"{'span':{TREE}}{'from the write on':{BAR}}    took", "bold")]
    for depth, span in _in_order(spans):
        name = "  " * depth + span.name.replace(prefix, "")
        left = round((span.started - first) / (last - first) * (BAR - 1))
        wide = max(1, round((span.ended - span.started) / (last - first) * (BAR - 1)))
        bar = " " * left + "█" * min(wide, BAR - left)
        took = f"{(span.ended - span.started) / NANOSECONDS:8,.1f} ms"
        lines.append(Text(f"{name[: TREE - 1]:{TREE}}", KINDS[span.kind]) + Text(f"{bar:{BAR}}{took}"))
    total = (last - first) / NANOSECONDS
    lines.append(
        Text(f"{len(spans)} spans, {total:,.0f} ms: green publishes, cyan handles, magenta asks a model")
    )
    return lines


def _in_order(spans: Sequence[SeenSpan], parent: str = "", depth: int = 0) -> Iterator[tuple[int, SeenSpan]]:
    for span in sorted((span for span in spans if span.parent == parent), key=lambda span: span.started):
        yield depth, span
        yield from _in_order(spans, span.span, depth + 1)


if __name__ == "__main__":
    main()
