"""What is stored of reforms, and read for them."""
