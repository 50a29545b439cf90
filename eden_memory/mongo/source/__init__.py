"""The application's collections and the inbox, followed by a change stream."""
