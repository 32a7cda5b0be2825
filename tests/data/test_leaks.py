"""Lines of validation and test sets are found in training text, as they are and nearly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.leaks import HeldOut

LINES = [
    "The committee has 24 members, who meet twice a year.",
    "La ley de 1994 entra en vigor al día siguiente.",
    "彼女は毎朝六時に起きて、川に沿って一時間ほど歩きます。",
    "Yes!",
]


@pytest.mark.parametrize(("line", "pair", "is_same"), [
    ("THE COMMITTEE HAS 24 MEMBERS WHO MEET TWICE A YEAR", 0, True),
    ("The committee has 25 members, who meet twice a year.", 0, False),
    ("Note: the committee has 24 members, who meet twice a year.", 0, False),
    ("La ley de 1994 entra en vigor al dia siguiente.", 1, True),
    ("La ley de 1997 entra en vigor al día siguiente.", 1, False),
    ("彼女は毎朝六時に起きて、川に沿って二時間ほど歩きます。", 2, False),
    ("yes", 3, True),
])  # fmt: skip
def test_equal_and_similar_lines_are_named(line: str, pair: int, is_same: bool) -> None:
    leaks = HeldOut(enumerate(LINES)).leaks(["Nothing of it.", line])
    assert [each.tolist() for each in leaks[:3]] == [[1], [pair], [is_same]]


@pytest.mark.parametrize("line", ["", "!?", "Yes, he does.", "The committee met.", "The members meet twice a year."])
def test_other_lines_are_not(line: str) -> None:
    assert all(not len(each) for each in HeldOut(enumerate(LINES)).leaks([line]))


def test_short_lines_count_only_with_their_other_side() -> None:
    pairs = [("Yes!", "Ja!"), ("No!", "Nein!"), (LINES[0], "Kurz."), ("Cafe", "Café")]
    held_out = HeldOut((i, line) for i, pair in enumerate(pairs, 5) for line in pair)
    training = [("yes", "ja"), ("no", "ja"), ("The committee has 25 members, who meet twice a year", "ja"), ("", "")]
    same, near = held_out.leaked_pairs(*map(list, zip(*training, strict=True)))
    assert (same.tolist(), near.tolist()) == ([5], [7])
    assert held_out.leaked_pairs(["CAFÉ", LINES[0]], ["Cafe\u0301", "?"])[0].tolist() == [7, 8]


NAMES = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
TEXTS = st.lists(st.lists(st.sampled_from(NAMES), max_size=9).map(" ".join), max_size=5)


@given(TEXTS, TEXTS)
def test_what_is_named_is_equal_or_shares_most_of_its_letters(held_out: list[str], lines: list[str]) -> None:
    def shingles(line: str) -> set[str]:
        letters = line.replace(" ", "")
        return {letters[i : i + 4] for i in range(len(letters) - 3)}

    leaks = HeldOut(enumerate(held_out)).leaks(lines)
    named = [(lines[i], held_out[n], bool(is_same)) for i, n, is_same, _ in zip(*leaks, strict=True)]
    same = [(line, other, True) for line in lines for other in held_out if line and line == other]
    assert sorted(each for each in named if each[2]) == sorted(same)
    for line, other, is_same in named:
        both, either = shingles(line) & shingles(other), shingles(line) | shingles(other)
        assert is_same or (line not in held_out and len(both) >= 0.65 * len(either))
