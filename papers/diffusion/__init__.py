"""Gu, Yu and Wang, "Adaptive Load Diffusion for Multiway Windowed Stream Joins" (ICDE 2007)."""
