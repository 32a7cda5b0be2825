"""terms.py extracts terms that aligned text translates consistently."""

import sys
from pathlib import Path

import pytest

import terms  # isort: skip # `stand_ins` has added its folder to the path


def glossary_of(lines: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Returns the terms, with the frequent words of these lines only."""
    monkeypatch.setattr("nmt.text.terms.FREQUENT_WORDS", 1)
    return terms.terms(*map(list, zip(*lines, strict=True)))


def test_phrases_are_terms_if_their_words_are_linked_only_to_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    line = ("The safety valve opens the pump.", "Das Sicherheitsventil öffnet die Pumpe.", "0-0 1-1 2-1 3-2 4-3 5-4")
    other = ("The pump, the.", "Die Pumpe, die.", "-0.5 ||| 0-0 1-1 2-2")
    glossary = glossary_of([line] * 3 + [other] * 2, monkeypatch)
    assert ("pump", "Pumpe", 5, 5) in glossary
    # Parts of it have no translation of their own.
    assert ("safety valve opens", "Sicherheitsventil öffnet", 3, 3) in glossary
    assert not [term for term, *_ in glossary if term in ("safety", "valve", "safety valve", "The pump", "pump the")]


def test_a_term_needs_three_lines_and_one_translation_in_four_of_five(monkeypatch: pytest.MonkeyPatch) -> None:
    def line(word: str, translation: str) -> tuple[str, str, str]:
        return f"the {word}", f"le {translation}", "0-0 1-1"

    lines = [line("vessel", "navire")] * 4 + [line("vessel", "bateau")] + [line("port", "port")] * 2
    assert glossary_of(lines, monkeypatch) == [("vessel", "navire", 5, 4)]
    assert glossary_of([*lines, line("vessel", "bateau")], monkeypatch) == []


def test_an_elided_word_is_no_part_of_a_translation(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [("the annex", "dans l’annexe, dans", "1-1")] * 2 + [("the annex", "dans une annexe", "1-2")]
    assert glossary_of(lines, monkeypatch) == [("annex", "annexe", 3, 3)]


def test_the_output_is_a_glossary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {"en": "a red lamp\n", "de": "eine rote Lampe\n", "links": "0-0 1-1 2-2\n"}
    files = [tmp_path / name for name in texts]
    for path in files:
        path.write_text(texts[path.name] * 3, encoding="utf-8")
    monkeypatch.setattr("nmt.text.terms.FREQUENT_WORDS", 0)
    monkeypatch.setattr(sys, "argv", ["terms.py", *map(str, files)])
    terms.main()
    assert capsys.readouterr().out == "# 3 of 3 lines\nred lamp\trote Lampe\n"


@pytest.mark.parametrize("source, target, message", [
    ("a red lamp", "赤いランプ", "3 of 3 lines of {target} are in a script without spaces between words"),
    ("红灯", "a red lamp", "3 of 3 lines of {source} are in a script without spaces between words"),
    ("a red lamp", "โคมไฟสีแดง", "3 of 3 lines of {target} are in a script without spaces between words"),
    ("1 2 3", "1 2 3", "no phrase of {source} is a term; give more text"),
    ("빨간 램프", "eine rote Lampe", ""),
])  # fmt: skip
def test_an_empty_glossary_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, target: str, message: str
) -> None:
    paths = {name: tmp_path / name for name in ("source", "target", "links")}
    for path, line in zip(paths.values(), (source, target, "0-1 1-2"), strict=True):
        path.write_text(f"{line}\n" * 3, encoding="utf-8")
    monkeypatch.setattr("nmt.text.terms.FREQUENT_WORDS", 0)
    for files in (list(paths), ["source", "target"]):
        monkeypatch.setattr(sys, "argv", ["terms.py", *(str(paths[name]) for name in files)])
        if message and ("script" in message or "links" in files):
            with pytest.raises(SystemExit, match=message.format(**paths)):
                terms.main()
        else:
            terms.main()
