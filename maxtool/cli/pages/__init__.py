"""Pages of pictures: HTML that holds all it needs, and asks nothing of any network."""
