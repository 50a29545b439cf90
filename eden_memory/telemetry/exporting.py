"""Export of a process's spans and metrics, where the settings name a collector."""

from collections.abc import Generator
from contextlib import contextmanager

from eden_memory.extras import needs
from eden_memory.settings import Settings
from eden_memory.telemetry.spans import TRACING


@contextmanager
def exporting(settings: Settings) -> Generator[None]:
    """Export inside the block, if `otel.endpoint` is set; MissingExtra where the SDK is not installed."""
    if settings.otel.endpoint is None:
        yield
        return
    needs("otel", "EDEN_OTEL_ENDPOINT")
    from eden_memory.telemetry.otlp import OtlpExport  # noqa: PLC0415 - an extra

    export = OtlpExport(settings)
    TRACING.begin(export, settings.otel.share)
    try:
        yield
    finally:
        TRACING.end()
        export.close()
