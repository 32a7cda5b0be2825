"""Required phrases as sequences: which are possible, and how far a text matches them. Knows no tensors.

The state of a phrase is the number of its tokens that the end of a text matches, as in the automaton of Knuth, Morris
and Pratt, and all of them once the text contains the phrase.
"""

from collections.abc import Sequence

from nmt.decoding.outputs import Required, contains

# With more phrases in a sentence, search does not use overlaps to fit them into the maximum length.
_MOST_OVERLAPPING = 6


def within(required: Required, max_length: int) -> Required:
    """Returns `required` with the phrases that are not parts of others, or without phrases if they are too long.

    Args:
        max_length: most tokens of the output, EOS included.
    """
    if not required.phrases:
        return required
    phrases = _independent(required.phrases)
    states = [_state(required.prefix, phrase) for phrase in phrases]
    fits = len(required.prefix) + _tokens_needed(phrases, states) < max_length
    return Required(required.prefix, phrases if fits else ())


def _independent(phrases: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Returns the phrases that no other phrase contains. An output with these contains all."""
    distinct = sorted(set(phrases), key=lambda phrase: (-len(phrase), phrase))
    kept: list[tuple[int, ...]] = []
    for phrase in distinct:
        if not any(contains(longer, phrase) for longer in kept):
            kept.append(phrase)
    return tuple(phrase for phrase in kept if phrase)


def _state(tokens: Sequence[int], phrase: tuple[int, ...]) -> int:
    """Returns how many tokens of the phrase the end of `tokens` matches; all of them if `tokens` contain it."""
    if contains(tokens, phrase):
        return len(phrase)
    return next(n for n in range(len(phrase) - 1, -1, -1) if tuple(tokens[len(tokens) - n :]) == phrase[:n])


def _tokens_needed(phrases: Sequence[tuple[int, ...]], states: Sequence[int]) -> int:
    """Returns the fewest tokens that complete independent phrases."""
    unmet = [a for a, phrase in enumerate(phrases) if states[a] < len(phrase)]
    everything, table = sum(2**a for a in unmet), following(phrases)

    def rest(first: int) -> int:
        if table:
            return table[first][everything - 2**first]
        return sum(len(phrases[a]) for a in unmet if a != first)

    return min((len(phrases[a]) - states[a] + rest(a) for a in unmet), default=0)


def following(phrases: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Returns the fewest tokens that complete a set of phrases right behind a phrase: a row a phrase, a column a set.

    Bit a of a set's number stands for phrase a. Too many phrases give no rows.
    """
    if len(phrases) > _MOST_OVERLAPPING:
        return []
    overlaps = [[_state(first, second) for second in phrases] for first in phrases]
    table = [[0] * 2 ** len(phrases) for _ in phrases]
    for phrase_set in range(1, 2 ** len(phrases)):
        members = [a for a in range(len(phrases)) if phrase_set >> a & 1]
        for last, row in enumerate(table):
            row[phrase_set] = min(len(phrases[a]) - overlaps[last][a] + table[a][phrase_set - 2**a] for a in members)
    return table


def failures(phrase: tuple[int, ...]) -> list[int]:
    """Returns, for each state, the longest shorter match at the end of the same tokens."""
    found = [0, 0]
    for n, token in enumerate(phrase[1:], 1):
        state = found[n]
        while state and phrase[state] != token:
            state = found[state]
        found.append(state + (phrase[state] == token))
    return found
