"""From a window's messages to stated facts and reflections."""
