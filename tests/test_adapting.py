"""adapt.sh tunes a model to earlier translations, and scores it on text that is not similar to what it was tuned on."""

from pathlib import Path

from stand_ins import LONGER, Recipe

import adapted  # isort: skip # `stand_ins` has added its folder to the path
import hold_out  # isort: skip


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_a_memory_becomes_a_tuned_model_with_its_card(recipe: Recipe, trained: Path, tmp_path: Path) -> None:
    english, german = (lines_of(trained / f"train.{lang}") for lang in ("en", "de"))
    rows = "".join(f"{source}\t{target}\n" for source, target in zip(english[:60], german[:60], strict=True))
    (tmp_path / "memory.tsv").write_text(rows, encoding="utf-8")
    for lang, lines in (("en", english), ("de", german)):
        (tmp_path / f"general.{lang}").write_text("".join(f"{line}\n" for line in lines[60:100]), encoding="utf-8")
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
    assert not set(lines_of(run / "new-test.en")) & set(lines_of(run / "new.en"))
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
