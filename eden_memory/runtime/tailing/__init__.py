"""The tailing loop: one leader, reading in, following, transactions."""
