"""What people get wrong when they connect a system like this one, looked at and put into words."""
