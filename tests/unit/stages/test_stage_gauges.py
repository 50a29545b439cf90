"""A stage's gauges show what it said last, under its own name."""

from prometheus_client import REGISTRY

from eden_memory.stages.stage_health import OF_A_STAGE, StageGauges


def shown(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_each_figure_goes_to_its_own_gauge_and_is_the_last_one() -> None:
    gauges = StageGauges("some-stage")
    assert shown("eden_stage_running", stage="some-stage") is None
    for extra in (0, 10):
        figures = {name: float(number + extra) for number, name in enumerate(OF_A_STAGE)}
        gauges.show({"order": 3 + extra, "turn": 4}, **figures)
        for name, gauge in OF_A_STAGE.items():
            assert shown(next(iter(gauge.describe())).name, stage="some-stage") == figures[name]
        assert shown("eden_stage_waiting_records", stage="some-stage", reason="order") == 3 + extra
        assert shown("eden_stage_waiting_records", stage="some-stage", reason="turn") == 4
