"""The live view: `build.py` makes it of recorded progress; terminal, page and notebooks only draw it."""
