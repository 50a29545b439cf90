"""Running programs: `eden run`, and the readers of an application's process."""
