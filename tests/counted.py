"""What counters of the program have grown by: a process has one of each, for all its tests."""

from collections import Counter
from collections.abc import Mapping

from prometheus_client.metrics import MetricWrapperBase


class Grown:
    """The growth of a counter since this was made, by the values of its labels."""

    def __init__(self, counter: MetricWrapperBase) -> None:
        self._counter, self._before = counter, _values(counter)

    def __call__(self) -> Mapping[tuple[str, ...], int]:
        return _values(self._counter) - self._before


def _values(counter: MetricWrapperBase) -> Counter[tuple[str, ...]]:
    samples = (sample for metric in counter.collect() for sample in metric.samples)
    values = {
        tuple(sample.labels.values()): sample.value for sample in samples if sample.name.endswith("_total")
    }
    return Counter({labels: int(value) for labels, value in values.items()})
