"""`eden rebuild` and `eden namespace`."""
