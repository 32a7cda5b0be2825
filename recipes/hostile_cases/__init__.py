"""The kinds of cases that hostile.py tries, and how it runs and judges them."""
