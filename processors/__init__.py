"""One file per consumer group, in flow order; they meet in topics only."""
