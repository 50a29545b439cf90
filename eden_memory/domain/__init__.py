"""Pure logic: no input, no output, no clock of its own."""
