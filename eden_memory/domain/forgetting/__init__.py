"""What is never to be remembered again."""
