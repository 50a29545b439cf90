"""The dashboards as code: Grafana reads what `python -m tests.dashboards.export` writes (make dashboards)."""
