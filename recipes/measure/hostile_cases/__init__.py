"""The kinds of cases that hostile.py runs, and how it runs and judges them."""
