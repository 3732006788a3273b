"""Pages: what a run recorded, read, checked and laid out."""
