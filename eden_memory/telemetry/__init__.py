"""OpenTelemetry: spans of the pipeline, and their export and that of metrics over OTLP."""
