"""What a join did, as people look at it: one view of recorded progress, shown in the terminal, a page and notebooks."""
