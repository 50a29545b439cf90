"""Programs that a checkout needs and an installed copy does not."""
