"""`nmt preprocess --augment`: which pairs change and how, and that shards do not matter."""

import random
from collections import Counter
from pathlib import Path

import pytest
from commands import run
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.augmentation import augmented, in_title_case, with_typing_errors, without_final_punctuation
from nmt.data.corpora import Chunk, augmented_chunk

PAIR = ("I don't know the old man.", "Ich kenne den alten Mann nicht.")
CHANGED = {
    ("I DON'T KNOW THE OLD MAN.", "ICH KENNE DEN ALTEN MANN NICHT."): "capitals",
    ("I Don't Know The Old Man.", "Ich Kenne Den Alten Mann Nicht."): "title",
    ("I don't know the old man", "Ich kenne den alten Mann nicht"): "punctuation",
    PAIR: "nothing",
}


def kind(pair: tuple[str, str]) -> str:
    if pair in CHANGED:
        return CHANGED[pair]
    if pair[1] == PAIR[1]:
        return "typing errors"
    assert pair[0] == pair[1]
    return "noise"


def test_pairs_change_as_often_as_the_help_says() -> None:
    """A binomial count is within five standard deviations of its mean, and these draws are always the same."""
    draws = 40_000
    found = Counter(kind(augmented(PAIR, 1, number)) for number in range(draws))
    shares = {"capitals": 0.07, "title": 0.05, "typing errors": 0.05, "punctuation": 0.2, "noise": 0.0005}
    for name, share in shares.items():
        assert found[name] == pytest.approx(draws * share, abs=5 * (draws * share * (1 - share)) ** 0.5), name
    assert augmented(PAIR, 1, 7) == augmented(PAIR, 1, 7)
    assert [augmented(PAIR, 1, n) for n in range(50)] != [augmented(PAIR, 2, n) for n in range(50)]


@given(st.text(max_size=60), st.integers())
def test_typing_errors_keep_the_words_apart_and_change_few_letters(line: str, seed: int) -> None:
    found = with_typing_errors(line, random.Random(seed))
    assert found.count(" ") == line.count(" ")
    errors = 1 + line.count(" ") // 8
    assert abs(len(found) - len(line)) <= errors
    kept = sum((Counter(line) & Counter(found)).values())
    assert kept >= len(line) - 2 * errors
    assert [c for c in found if not c.isalpha()] == [c for c in line if not c.isalpha()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("It ends.", "It ends"),
        ("Fini\u00a0!", "Fini"),
        ("終わり。", "終わり"),
        ("Mr. X", "Mr. X"),
        ("...", "..."),
        ("", ""),
    ],
)
def test_only_final_punctuation_is_dropped(line: str, expected: str) -> None:
    assert without_final_punctuation(line) == expected
    assert in_title_case(line).lower() == line.lower()


def test_shards_do_not_matter_and_validation_does_not_change(trained: Path, tmp_path: Path) -> None:
    command = ["preprocess", "--source-lang=en", "--target-lang=de", f"--train={trained}/train", "--vocab-size=400",
               f"--valid={trained}/valid"]  # fmt: skip
    run(*command, f"--dest={tmp_path}/plain", "--workers=1")
    run(*command, f"--dest={tmp_path}/one", "--augment", "--workers=1")
    run(*command, f"--dest={tmp_path}/two", "--augment", "--workers=2", "--shard-lines=70")
    stored = [{p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("plain", "one", "two")]
    plain, one, two = ({n: b for n, b in files.items() if n != "meta.json"} for files in stored)
    assert one == two
    assert one["train.en.tokens"] != plain["train.en.tokens"]
    assert one["valid.en.txt"] == plain["valid.en.txt"]
    assert b'"augment": true' in (tmp_path / "one" / "meta.json").read_bytes()


def test_pairs_whose_words_change_places_lose_their_alignment() -> None:
    rows = ["I saw a dog in a park", "Ich sah einen Hund in einem Park", "0-0 1-1 2-2 3-3 4-4 5-5 6-6", ""]
    found = augmented_chunk(Chunk(*(4000 * [text] for text in rows)), 1)
    wrong = [i for i, line in enumerate(found.source) if len(line.split()) != 7]
    assert wrong
    assert [i for i, line in enumerate(found.alignments) if not line] == wrong
