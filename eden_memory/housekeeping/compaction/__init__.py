"""Kafka's compaction now: lower the settings of topics, let segments roll, wait, restore the settings."""
