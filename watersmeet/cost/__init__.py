"""What strategies cost: the papers' equations, and their parameters as measured."""
