"""Everything that a program or person can ask of memory: one row for each operation; every door is made from them."""
