"""Topics and the pages and documents generated from them."""
