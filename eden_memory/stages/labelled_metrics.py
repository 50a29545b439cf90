"""The process's metrics with a label that says which namespace they are of."""

from collections.abc import Iterator
from functools import lru_cache

from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString  # pyright: ignore[reportUnknownVariableType]
from starlette.requests import Request
from starlette.responses import Response

LABEL = "namespace"
CREATED = "_created"
"""Times of birth: half of all samples, and no dashboard asks for them."""
CLASSIC = {
    "counter": ("_total", "counter"),
    "info": ("_info", "gauge"),
    "stateset": ("", "gauge"),
    "unknown": ("", "untyped"),
}
"""The older text format's names for families: how the name ends, and the type."""


class Labelled(CollectorRegistry):
    """Collects another registry's samples, each with one more label."""

    def __init__(self, namespace: str, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__()
        self._label, self._registry = {LABEL: namespace}, registry

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are now."""
        for metric in self._registry.collect():
            found = Metric(metric.name, metric.documentation, metric.type, metric.unit)
            found.samples = [
                self._with_label(sample) for sample in metric.samples if not sample.name.endswith(CREATED)
            ]
            yield found

    def _with_label(self, sample: Sample) -> Sample:
        labels = {**self._label, **sample.labels}
        return Sample(sample.name, labels, sample.value, sample.timestamp, sample.exemplar)


def metrics_page(namespace: str, request: Request) -> Response:
    """`/metrics`, in the format that the scraper asks for."""
    disable_created_metrics()
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    if "escaping=dots" in content_type:  # that one changes our names, too
        page = encode(Labelled(namespace))
    else:
        page = exposition(namespace, openmetrics=content_type.startswith("application/openmetrics-text"))
    return Response(page, headers={"Content-Type": content_type})


def exposition(namespace: str, *, openmetrics: bool, registry: CollectorRegistry = REGISTRY) -> bytes:
    """Encode `Labelled` as the library's encoders do, to the byte, in a third of the time.

    They escape every label of every sample anew. Ours have plain names, no exemplars and no times of their own.
    """
    lines: list[str] = []
    for family in registry.collect():
        lines += _open_head(family) if openmetrics else _classic_head(family)
        lines += [
            f"{name}{_labels(namespace, tuple(labels.items()))} {floatToGoString(value)}\n"
            for name, labels, value, *_ in family.samples
            if not name.endswith(CREATED)
        ]
    return "".join([*lines, "# EOF\n"] if openmetrics else lines).encode()


def _open_head(family: Metric) -> list[str]:
    unit = [f"# UNIT {family.name} {family.unit}\n"] if family.unit else []
    return [
        f"# HELP {family.name} {_escaped(family.documentation)}\n",
        f"# TYPE {family.name} {family.type}\n",
        *unit,
    ]


def _classic_head(family: Metric) -> list[str]:
    ending, kind = CLASSIC.get(family.type, ("", family.type))
    about = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    return [f"# HELP {family.name}{ending} {about}\n", f"# TYPE {family.name}{ending} {kind}\n"]


@lru_cache(maxsize=50_000)
def _labels(namespace: str, labels: tuple[tuple[str, str], ...]) -> str:
    """They are bounded, and the same at every scrape."""
    everything = sorted({LABEL: namespace, **dict(labels)}.items())
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in everything) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
