"""How far groups are behind, for everybody to see."""
