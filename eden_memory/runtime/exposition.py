"""The process's metrics with a label that says which namespace they are of."""

from collections.abc import Iterator

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample
from starlette.requests import Request
from starlette.responses import Response

LABEL = "namespace"
CREATED = "_created"
"""Times of birth: half of all samples, and no dashboard asks for them."""


class Labelled(CollectorRegistry):
    """What another registry collects, each sample with one more label."""

    def __init__(self, namespace: str, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__()
        self._label, self._registry = {LABEL: namespace}, registry

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are now."""
        for metric in self._registry.collect():
            found = Metric(metric.name, metric.documentation, metric.type, metric.unit)
            found.samples = [
                self._with_label(one) for one in metric.samples if not one.name.endswith(CREATED)
            ]
            yield found

    def _with_label(self, sample: Sample) -> Sample:
        labels = {**self._label, **sample.labels}
        return Sample(sample.name, labels, sample.value, sample.timestamp, sample.exemplar)


def metrics_page(namespace: str, request: Request) -> Response:
    """`/metrics`, in the format that the scraper asks for."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(Labelled(namespace)), headers={"Content-Type": content_type})
