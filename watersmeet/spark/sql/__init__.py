"""Conditions and SELECT lists as Spark reads them, and what of them the engine decides by itself."""
