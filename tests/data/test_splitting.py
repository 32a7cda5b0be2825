"""`nmt split` holds out pairs of which training has no copy."""

import csv
from pathlib import Path

import pytest
from commands import LANGS, failed, run
from conftest import invented_pairs, write_pairs


def pairs_of(prefix: Path) -> list[tuple[str, str]]:
    sides = (Path(f"{prefix}.{lang}").read_text().splitlines() for lang in ("en", "de"))
    return list(zip(*sides, strict=True))


@pytest.mark.parametrize("name", ["corpus", "corpus.csv"])
def test_pairs_are_held_out_and_their_copies_left_out(tmp_path: Path, name: str) -> None:
    pairs = [pair for pair in invented_pairs(160) if len(pair[0]) > 40]
    copies = [(f"{source.upper()}!", target) for source, target in pairs]
    if name == "corpus":
        write_pairs(tmp_path / name, [*pairs, ("", "leer"), *copies])
    else:
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file, delimiter=";").writerows([("Englisch", "Deutsch"), *pairs, *copies])
    command = "split", tmp_path / name, *LANGS, "--lines=8"
    said = run(*command, f"--dest={tmp_path}/parts").stderr
    train, dev, test = (pairs_of(tmp_path / "parts" / part) for part in ("train", "dev", "test"))
    assert (len(dev), len(test)) == (8, 8)
    places = {source.casefold().rstrip(".!"): i for i, (source, _) in enumerate(pairs)} | {"": -1}
    held_out, kept = ({places[source.casefold().rstrip(".!")] for source, _ in part} for part in ([*dev, *test], train))
    assert not held_out & kept and -1 not in held_out
    left_out = 2 * len(pairs) + (name == "corpus") - len(train) - 16
    assert left_out > 0 and f"left out {left_out} copies" in said
    order = [[*pairs, ("", "leer"), *copies].index(pair) for pair in train]
    assert order == sorted(order)
    run(*command, f"--dest={tmp_path}/again")
    assert pairs_of(tmp_path / "again" / "test") == test
    assert "already exists; remove it or choose another folder" in failed(*command, f"--dest={tmp_path}/parts")


def test_an_existing_folder_and_a_corpus_of_copies_end_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    missing = failed("split", tmp_path / "missing", *LANGS, f"--dest={tmp_path}/there")
    assert f"--dest {tmp_path}/there already exists" in missing
    prefix = write_pairs(tmp_path / "corpus", [("The same sentence of words.", "Derselbe Satz aus Wörtern.")] * 40)
    said = failed("split", prefix, *LANGS, "--lines=5", f"--dest={tmp_path}/parts")
    assert "so none is left for training; drop its copies with nmt clean first" in said
    assert not (tmp_path / "parts").exists()


def test_a_corpus_that_is_too_small_is_not_split(tmp_path: Path) -> None:
    prefix = write_pairs(tmp_path / "corpus", invented_pairs(30))
    said = failed("split", prefix, *LANGS, "--lines=8", f"--dest={tmp_path}/parts")
    assert f"--lines 8 holds out 16 of the 30 pairs of {prefix}; give fewer --lines, so that it is at most half" in said
    assert not (tmp_path / "parts").exists()
