"""Checks of the settings, the servers and the application's messages, with a hint for each problem."""
