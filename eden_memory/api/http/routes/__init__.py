"""What can be asked, by what it is about."""
