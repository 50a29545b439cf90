"""Documents generated from topics.yaml, the schemas and the settings."""
