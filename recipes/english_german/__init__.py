"""The grammar behind `grammar.py`: words, the rules of both languages, and what is chosen at random."""
