"""adapt.sh tunes a model to earlier translations, and scores it on text that is not similar to what it was tuned on."""

import sys
from pathlib import Path

import pytest
from stand_ins import LONGER, Recipe

from nmt.errors import NmtError
from nmt.text.text_config import TextConfig

import adapted  # isort: skip # `stand_ins` has added its folder to the path
import direction  # isort: skip
import hold_out  # isort: skip


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_a_memory_becomes_a_tuned_model_with_its_card(recipe: Recipe, trained: Path, tmp_path: Path) -> None:
    english, german = (lines_of(trained / f"train.{lang}") for lang in ("en", "de"))
    rows = "".join(f"{source}\t{target}\n" for source, target in zip(english[:60], german[:60], strict=True))
    (tmp_path / "memory.tsv").write_text(rows, encoding="utf-8")
    for lang, lines in (("en", english), ("de", german)):
        (tmp_path / f"general.{lang}").write_text("".join(f"{line}\n" for line in lines[50:100]), encoding="utf-8")
    model, run = str(trained / "run" / "best.safetensors"), tmp_path / "run"
    options = {"RUN": run, "HELD_OUT": 4, "GENERAL": tmp_path / "general"}
    start = [model, str(tmp_path / "memory.tsv"), "--hours", "0.01", "--", *LONGER[len(LONGER) - 6 :]]
    done = recipe("adapt.sh", *start, **options)
    card = (run / "README.md").read_text(encoding="utf-8")
    assert card in done.stdout
    systems = ["new.before", "new.after", "new.after-with-memory", "old.before", "old.after"]
    assert [line.split()[0] for line in card.splitlines() if line.startswith(("new.", "old."))] == systems
    assert "nmt train RUN/data --init-from" in card
    assert (run / "adapted.safetensors").resolve().exists()
    for held_out in ("new-test.en", "new-valid.en"):
        assert not set(lines_of(run / held_out)) & {*lines_of(run / "new.en"), *lines_of(run / "old.en")}
    assert "nmt train" not in recipe("adapt.sh", *start, **options).stderr
    assert "MEMORY is missing; usage: adapt.sh" in recipe("adapt.sh", model, "--hours", "1", code=1).stderr


def test_text_that_is_similar_to_held_out_text_is_left_out() -> None:
    numbers = [
        f"The minister may make order {n} about the fishing of {fish}." for n in range(3) for fish in ("cod", "eel")
    ]
    others = ["Nobody sleeps.", "The red lamp hangs above a door.", "We saw him yesterday in town, and he was well."]
    held_out, similar = hold_out.held_out_pairs([numbers[0], *others, numbers[1]], "en", 2)
    assert held_out == [4, 3] and similar == {0}
    repeated = hold_out.held_out_pairs([*others, *numbers], "en", 2)
    assert repeated == ([2, 1], set())
    assert hold_out.held_out_pairs(others, "en", 0) == ([], set())


@pytest.mark.parametrize("lines, options, message", [
    (["The red lamp hangs here."] * 2, ["--held-out=1", "--no-test"], "1 are held out and 1 are similar to these; add"),
    (["The minister sleeps.", "Nobody saw a lamp."], ["--held-out=1"], "none of the 2 pairs of {corpus} is left for"),
    ([], ["--held-out=0"], "none of the 0 pairs of {corpus} is left for training"),
    (["The minister sleeps."], ["--held-out=0", "--like={empty}"], "{empty} has no lines, and {new} may not have more"),
    (["The minister sleeps."], ["--held-out=1"], "only 1 of 1 pairs of {corpus} differ from all others"),
])  # fmt: skip
def test_a_split_without_training_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], options: list[str], message: str
) -> None:
    paths = {name: str(tmp_path / name) for name in ("corpus", "new", "empty")}
    for path in (*(f"{paths['corpus']}.{lang}" for lang in ("pt-BR", "en")), paths["empty"]):
        Path(path).write_text("".join(f"{line}\n" for line in (lines if path != paths["empty"] else [])))
    options = [option.format(**paths) for option in options]
    monkeypatch.setattr(sys, "argv", ["hold_out.py", paths["corpus"], paths["new"], "pt-BR", "en", *options])
    with pytest.raises(SystemExit, match=message.format(**paths)):
        hold_out.main()
    assert not list(tmp_path.glob("new*"))


@pytest.mark.parametrize("languages, name, expected", [
    (["pt-BR", "en", "fr"], "pt-BR-en", ("pt-BR", "en")),
    (["pt-BR", "en", "fr"], "en-pt-BR", ("en", "pt-BR")),
    (["pt-BR", "zh-Hant-TW"], "zh-Hant-TW-pt-BR", ("zh-Hant-TW", "pt-BR")),
    (["pt-BR", "en", "br"], "pt-BR-en", ("pt-BR", "en")),  # not to Breton
    (["por_Latn", "eng_Latn"], "pt-BR-en", ("pt-BR", "en")),
    (["eng_Latn", "fra_Latn"], "eng_Latn-fra_Latn", ("eng_Latn", "fra_Latn")),
    (["en", "fr"], "fr-en", ("fr", "en")),
    (["pt", "en", "br"], "pt-br-en", "DIRECTION pt-br-en means pt to br-en or pt-br to en; name two of"),
    (["en", "fr"], "en-de", "DIRECTION en-de means no two languages of the model; name two of en, fr"),
    (["en", "fr"], "en", "DIRECTION en means no two languages of the model"),
    (["en", "fr"], "en-", "DIRECTION en- means no two languages of the model"),
])  # fmt: skip
def test_a_direction_is_cut_between_two_languages_of_the_model(
    languages: list[str], name: str, expected: tuple[str, str] | str
) -> None:
    text = TextConfig(
        source_lang="mul", target_lang="mul", source_tokenizer="none", target_tokenizer="none",
        normalize_punctuation="none", lowercase=False, subword="unigram", joint_vocab=True,
        languages=tuple(languages), language_pieces=tuple(languages),
    )  # fmt: skip
    if isinstance(expected, tuple):
        assert direction.languages_of(name, text) == expected
    else:
        with pytest.raises(NmtError, match=expected):
            direction.languages_of(name, text)


def test_the_model_that_gains_most_is_taken_unless_it_forgets_too_much() -> None:
    def taken(tuned: tuple[float, float], averaged: tuple[float, float]) -> str:
        bleu = {("new", "model"): 20.0, ("old", "model"): 30.0}
        for name, scores in {"tuned": tuned, "averaged": averaged}.items():
            bleu["new", name], bleu["old", name] = scores
        return adapted.taken(bleu)

    assert taken((29, 29.6), (25, 30)) == "tuned"
    assert taken((29, 29.4), (25, 29.6)) == "averaged"
    assert taken((29, 20), (25, 25)) == "averaged"
    assert adapted.taken({("new", "model"): 20.0, ("new", "tuned"): 29.0, ("new", "averaged"): 25.0}) == "tuned"
