"""What the tailer reads, and the records that it becomes."""
