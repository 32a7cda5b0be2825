"""Glossaries: which terms a line has, files of terms, and translations with the terms by command and over HTTP."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import TEXT_CONFIG, generated, saved, some_sentences, sure_checkpoint
from commands import failed, run
from hypothesis import given
from hypothesis import strategies as st
from servers import Server, serving

from nmt.config import RuntimeConfig
from nmt.errors import NmtError
from nmt.text.directions import Direction
from nmt.text.glossary import Glossary, TermOccurrence, TermPlace, with_terms
from nmt.text.protected import Protected
from nmt.text.subword import UNK
from nmt.text.words import NO_WORD, pharaoh
from nmt.translate.pairs import EncodedPair
from nmt.translate.pytorch_engine import PyTorchEngine
from nmt.translate.units import Unit, UnitMaker

OPTIONS = ["--precision=fp32", "--max-length-offset=12"]
TERMS = {"few": ("xyz",), "learn": ("lernt", "lernte"), "few words": ("um um",), "pieces": ("q", "zzzz")}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(sure_checkpoint(3), tmp_path_factory.mktemp("model") / "model.safetensors")


# Terms of a line


def term_forms(terms: dict[str, str], line: str, *, spaces: bool = True) -> list[str]:
    """Returns the forms of the terms in a line, joined by /, once for each term."""
    glossary = Glossary({term: tuple(forms.split("/")) for term, forms in terms.items()})
    merged: dict[str, list[str]] = {}
    for term in glossary.occurrences_in(line, Direction("en" if spaces else "ja", "")):
        merged.setdefault(term.forms[0], []).extend(term.forms)
    return ["/".join(dict.fromkeys(forms)) for forms in merged.values()]


ANIMALS = {"cat": "Katze/Katzen", "Polar": "P", "guinea pig": "meerschwein", "pig": "Schwein", "New York": "NY"}


@pytest.mark.parametrize("terms, line, forms", [
    (ANIMALS, "the cat and the cat", ["Katze/Katzen"]),
    (ANIMALS, "a cat, a pig", ["Katze/Katzen", "Schwein"]),
    (ANIMALS, "a guinea pig", ["meerschwein"]),  # the longest term wins
    (ANIMALS, "a guinea \t pig and a pig", ["meerschwein", "Schwein"]),
    (ANIMALS, "cats concat cat2 cát", []),
    (ANIMALS, "cat's 'cat' cat-like", ["Katze/Katzen"]),
    (ANIMALS, "Cat!", ["Katze/Katzen"]),  # a term in lower case may begin a sentence
    (ANIMALS, "“Cat”", ["Katze/Katzen"]),
    (ANIMALS, "Yes. Cat", ["Katze/Katzen"]),
    (ANIMALS, "Yes?” (Cat", ["Katze/Katzen"]),
    (ANIMALS, "the Cat", []),
    (ANIMALS, "CAT", []),
    (ANIMALS, "Guinea pig", ["meerschwein/Meerschwein"]),
    (ANIMALS, "Guinea pig, guinea pig", ["meerschwein/Meerschwein"]),
    (ANIMALS, "polar, new york, New york", []),  # capitals of a term count everywhere
    (ANIMALS, "Polar in New York", ["P", "NY"]),
    (ANIMALS, "", []),
    ({"a b": "1", "b c d": "2"}, "a b c d", ["2"]),  # the longest wins, although the other begins first
    ({"a b": "1", "b c": "2"}, "a b c", ["1"]),  # of equally long ones, the first
    ({"किताब": "book"}, "किताबें", []),  # a vowel sign continues the word
    ({".NET": "1", "C++": "2"}, "The.NET and C++11", ["1", "2"]),  # a term may begin and end with other characters
    ({"Apple": "Apple", "apple": "Apfel"}, "Apple", ["Apple"]),
    ({"hund": "dog/Fido"}, "Hund", ["dog/Fido/Dog"]),
    ({"10 km": "1"}, "ab 10\u00a0km", ["1"]),
    ({"10 km": "1"}, "ab 10\u202fkm", ["1"]),
])  # fmt: skip
def test_whole_words_match(terms: dict[str, str], line: str, forms: list[str]) -> None:
    assert term_forms(terms, line) == forms


def test_without_spaces_terms_match_anywhere() -> None:
    assert term_forms({"学习": "learn", "机器学习": "machine learning"}, "他用机器学习来学习。", spaces=False) == [
        "machine learning", "learn",
    ]  # fmt: skip
    assert term_forms({"学习": "learn", "机器学习": "machine learning"}, "机器学习", spaces=False) == [
        "machine learning"
    ]


@pytest.mark.parametrize("term, line, places", [
    ("well-being", "As well, being late: well-beings", [(21, 32)]),  # not only the words count
    ("fill form", "to fill. Form there, fill forms", [(21, 31)]),
    ("invoice (paid)", "invoices paid, invoices (paid)", [(15, 30)]),
    ("Yahoo!", "Yahoos, Yahoos!", [(8, 15)]),
    ("e-mail word", "two e-mail words", [(4, 16)]),
    ("किताब", "किताबs किताबीs", [(0, 6)]),  # a vowel sign belongs to the word
    ("apple", "She works at Apple. Apples are fruit", [(20, 26)]),  # capitals only at the beginning of a sentence,
    ("fill form", "How to Fill Forms", [(7, 17)]),  # or in a heading
])  # fmt: skip
def test_other_forms_of_terms_match(term: str, line: str, places: list[tuple[int, int]]) -> None:
    terms = Glossary({term: ("Wort",)}).occurrences_in(line, Direction("en", "de"), {("", "s")})
    assert [term[:3] for term in terms] == [(start, stop, ("Wort",)) for start, stop in places]


def test_the_forms_of_a_term_in_capitals_are_in_capitals_too() -> None:
    glossary = Glossary({"invoice": ("Rechnung",), "EU": ("EU",)})
    terms = glossary.occurrences_in("PAY EU INVOICES", Direction("en", "de"), {("", "s")})
    assert [term.forms for term in terms] == [("EU",), ("RECHNUNG", "Rechnung")]


def test_a_form_may_begin_a_word_and_in_chinese_stand_anywhere() -> None:
    term = TermOccurrence(0, 3, ("art", "学习"))
    assert (
        term.form_in("an art.") and term.form_in("artist") and term.form_in("他学习。") and not term.form_in("Partner")
    )


def test_words_that_stay_are_no_terms() -> None:
    lines = ["see https://x.org/few and few", "mail few@x.org, #few, few", "<few>  a b few"]
    maker = UnitMaker(TEXT_CONFIG, Protected(), Direction("en", "de"), glossary=Glossary({"few": ("x",)}))
    for line in lines:
        (sentence,) = maker.complete(Unit(line)).sentences
        assert [term[:3] for term in sentence.terms] == [
            (len(" ".join(line.split())) - 3, len(" ".join(line.split())), ("x",))
        ]


WORDS = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=3).map(" ".join)


@given(st.sets(WORDS, min_size=1, max_size=4), st.lists(st.sampled_from(["a", "b", "ab"]), max_size=7))
def test_terms_are_those_of_a_search_over_words(terms: set[str], words: list[str]) -> None:
    """The longest occurrence is taken first, and each word belongs to one occurrence at most."""
    spans = itertools.combinations(range(len(words) + 1), 2)
    occurrences = [(i, j) for i, j in spans if " ".join(words[i:j]) in terms]
    taken: dict[int, str] = {}
    free = set(range(len(words)))
    for i, j in sorted(occurrences, key=lambda span: (-len(" ".join(words[slice(*span)])), span)):
        if free >= set(range(i, j)):
            free -= set(range(i, j))
            taken[i] = " ".join(words[i:j])
    expected = list(dict.fromkeys(taken[i] for i in sorted(taken)))
    assert term_forms({term: term for term in terms}, " ".join(words)) == expected


@pytest.mark.parametrize("translation, target, expected, links", [
    ("Ein Mann fährt Rad.", range(3, 4), "Ein Mann fährt Velo.", "0-0 1-1 2-2 4-3"),
    ("„Rad“ – das fährt", range(1), "„Velo“ – das fährt", "1-1 2-2 3-3 4-0"),
    ("Er ein neues Rad", range(1, 3), "Er Velo Rad", "0-0 3-2 4-1"),
    ("Ein Mann fährt dort", range(0), "Ein Mann fährt dort", "0-0 1-1 2-2 3-3"),
])  # fmt: skip
def test_a_term_takes_the_place_of_words(translation: str, target: range, expected: str, links: str) -> None:
    term = TermOccurrence(start=17, stop=21, forms=("Velo", "ein Fahrrad"))
    alignment = [(i, i) for i in range(4)]
    written = [*with_terms(translation, [TermPlace(term, range(4, 5), target)], alignment)]
    (text, aligned), (other, others) = written[0], written[-1]
    assert (text, pharaoh(aligned)) == (expected, links)
    assert other == expected.replace("Velo", "ein Fahrrad")
    assert all(0 <= j < len(other.split()) for _, j in others) and len(others) == len(aligned) + (len(target) > 0)


def test_nouns_of_german_may_have_an_umlaut() -> None:
    glossary, line = Glossary({"Fahrrad": ("pushbike",), "schon": ("yet",)}), "Fahrräder sind schön."
    for lang, expected in (("de", [("pushbike",)]), ("nl", [])):
        terms = glossary.occurrences_in(line, Direction(lang, "en"), {("", "er")})
        assert [term.forms for term in terms] == expected


def test_two_terms_whose_places_overlap_stand_side_by_side() -> None:
    first, second = Glossary({"street": ("Gasse",), "vendor": ("Krämer",)}).occurrences_in(
        "A street vendor.", Direction("en", "de")
    )
    places = [TermPlace(first, range(1, 2), range(1, 3)), TermPlace(second, range(2, 3), range(2, 3))]
    ((text, _),) = with_terms("Ein Verkäufer dort.", places, [])
    assert text == "Ein Gasse Krämer."


@pytest.mark.parametrize("translation, target, expected", [
    ("„Oft fährt er.", range(1), "„Häufig fährt er."), ("Er fährt oft.", range(2, 3), "Er fährt häufig."),
    ("Er ruht. Oft fährt er.", range(2, 3), "Er ruht. Häufig fährt er."), ("oft ruht er", range(1), "häufig ruht er"),
    ("Er fährt Rad Oft.", range(3, 4), "Er fährt Rad häufig."),
])  # fmt: skip
def test_a_term_gets_the_capital_of_a_beginning_sentence(translation: str, target: range, expected: str) -> None:
    (term,) = Glossary({"often": ("häufig",)}).occurrences_in("He often rides.", Direction("en", "de"))
    ((text, _),) = with_terms(translation, [TermPlace(term, range(1, 2), target)], [])
    assert text == expected and term.form_in(expected)
    assert not term.form_in("Er fährt Häufig.")


def test_terms_have_combinations_of_their_forms() -> None:
    forms = [tuple(f"{word}{i}" for i in range(4)) for word in ("Rechnung", "Auftrag")]
    glossary = Glossary(dict(zip(("bill", "order"), forms, strict=True)))
    terms = glossary.occurrences_in("bill of order", Direction("en", "de"))
    places = [TermPlace(term, range(i, i + 1), range(i, i + 1)) for term, i in zip(terms, (0, 2), strict=True)]
    texts = [text for text, _ in with_terms("A zu B", places, [])]
    assert texts[:4] == [f"{a} zu {b}" for a, b in zip(*forms, strict=True)]
    assert len(set(texts)) == len(texts) == 12
    assert set(texts) < {f"{a} zu {b}" for a, b in itertools.product(*forms)}


def test_a_contraction_is_no_article() -> None:
    place = TermPlace(TermOccurrence(0, 3, ("everyone",)), range(1), range(1))
    assert [text for text, _ in with_terms("we're here", [place], [])] == ["everyone here"]


@pytest.mark.parametrize("form, written", [("université", "l'université"), ("lycée", "lycée"), ("hôtel", "l'hôtel")])
def test_an_article_before_a_vowel_stays(form: str, written: str) -> None:
    place = TermPlace(TermOccurrence(0, 6, (form,)), range(1), range(2, 3))
    ((text, _),) = with_terms("va à l'école.", [place], [])
    assert text == f"va à {written}."


@pytest.mark.parametrize("line, is_whole", [
    ("a man rides some bike!", True), ("a man rides some bike-friendly", False), ("a man rides some (bike)", True),
    ("a man rides somebike", False), ("a man rides one;.bike", False),
])  # fmt: skip
def test_only_whole_words_are_replaced(line: str, is_whole: bool) -> None:
    start = line.index("bike")
    assert TermOccurrence(start, start + 4, ("Velo",)).is_whole_in(line) == is_whole


# Files


def written(path: Path, terms: dict[str, tuple[str, ...]]) -> Path:
    path.write_text("".join("\t".join([term, *forms]) + "\n" for term, forms in terms.items()))
    return path


def test_comments_blank_lines_and_spaces_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "terms").write_bytes(
        "\ufeff# a\tb\n\n \t\ncat \t Katze\tKatzen\t\t\r\nguinea  pig\tMeer schwein".encode()
    )
    glossary = Glossary.read(tmp_path / "terms")
    terms = glossary.occurrences_in("a guinea pig, a cat", Direction("en", "de"))
    assert [term[:3] for term in terms] == [(2, 12, ("Meer schwein",)), (16, 19, ("Katze", "Katzen"))]


@pytest.mark.parametrize("content", [
    '# a\tb\r\nbig dog\t"Hund, großer"\tRüde\r\n'.encode("utf-16"), "big dog\tHund, großer\tRüde".encode("utf-16-le"),
    "# a\tb\rbig dog\tHund, großer\tRüde\r".encode(), '\nbig dog\t"Hund, großer"\t"Rüde"'.encode("utf-16"),
])  # fmt: skip
def test_spreadsheets_write_glossaries_in_utf_16(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "terms.txt").write_bytes(content)
    assert Glossary.read(tmp_path / "terms.txt").terms == {"big dog": ("Hund, großer", "Rüde")}


@pytest.mark.parametrize("content, said", [
    (b"", "terms has no terms; write lines with a source term, a tab, and a target term"),
    (b"# a\tb\n", "terms has no terms"),
    (b"a\tb\n\nc\n", "terms, line 3 has no target term; write the source term, a tab, and the target term"),
    (b"a\t \n", "terms, line 1 has no target term"),
    (b"\tb\n", "terms, line 1 has no source term"),
    (b"a\tb\nc\td\na\te\n", "terms, line 3 has the source term 'a' for the second time; put all"),
    (b"a\t\xff\n", "terms, line 1: byte 3 (0xff) is not UTF-8"),
    (None, "terms"),
])  # fmt: skip
def test_a_wrong_file_is_named(model: Path, tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "terms"
    if content is not None:
        path.write_bytes(content)
        with pytest.raises(NmtError, match=re.escape(said)):
            Glossary.read(path)
    for command in (["generate", model, "--glossary", path], ["serve", model, "--port=0", f"--glossary=names={path}"]):
        assert said in failed(*command, "--device=cpu", stdin=b"a\n")


# nmt generate


LINES = [*some_sentences(20, seed=3), "Learn to learn", "to"]


def mean_log_prob(hypothesis: dict[str, Any]) -> float:
    values = hypothesis["log_probs"]
    return sum(values) / len(values)


def test_a_term_stands_where_the_translation_depends_on_its_source(model: Path, tmp_path: Path) -> None:
    """The reference computes log P of each translation with an unknown piece in place of each source word."""
    engine = PyTorchEngine.load(model, runtime=RuntimeConfig(device="cpu", precision="fp32"))
    codec, expected = engine.codec, dict[str, dict[str, str]]()  # of each term, the translation of each line
    for line in generated(model, LINES[:-1], *OPTIONS):  # the last one is a term as a whole
        source, text = line["source"], line["hypotheses"][0]["text"]
        (ids,), (target,) = codec.encode_source([source]), codec.encode_target([text])
        source_words, target_words = codec.words("source", source, ids), codec.words("target", text, target)
        for place, word in enumerate(source.split()):
            first, last = source_words.index(place), len(source_words) - source_words[::-1].index(place)
            changed = [*ids[:first], UNK, *ids[last:]]
            pairs = [EncodedPair(1, source, (text,), np.array(each), (np.array(target),)) for each in (ids, changed)]
            whole, without = (score.log_probs[:-1] for (score,) in engine.score(pairs, alignments=False))
            falls = [0.0] * len(text.split())
            for target_word, a, b in zip(target_words, whole, without, strict=True):
                if target_word != NO_WORD:
                    falls[target_word] += a - b
            linked = [j for j, fall in enumerate(falls) if 2 * fall >= max(falls)]
            is_clear = all(abs(2 * fall - max(falls)) > 0.01 for fall in falls) and max(falls) > 0.5
            if source.split().count(word) == 1 and is_clear and linked == [*range(linked[0], linked[-1] + 1)]:
                words = text.split()
                words[linked[0] : linked[-1] + 1] = ["xyz"]
                expected.setdefault(word, {})[source] = " ".join(words)
    term, translations = max(expected.items(), key=lambda item: len(item[1]))
    path = written(tmp_path / "terms", {term: ("xyz",)})
    lines = generated(model, [*translations], *OPTIONS, "--glossary", path)
    assert [line["hypotheses"][0]["text"] for line in lines] == [*translations.values()] != []


def test_a_translation_that_terms_make_much_less_probable_is_doubtful_or_stays_without_them(
    model: Path, tmp_path: Path
) -> None:
    path, lines = written(tmp_path / "terms", {"few": ("xyzxyzxyz",), "words": ("um",)}), LINES[:-1]
    flags = [*OPTIONS, "--glossary", path]
    rows = zip(
        *(generated(model, lines, *each) for each in (OPTIONS, flags, [*flags, "--glossary-fallback"])), strict=True
    )
    doubts = []
    for free, forced, kept in (tuple(line["hypotheses"][0] for line in row) for row in rows):
        doubts.append(mean_log_prob(free) - mean_log_prob(forced) > 3)
        assert ("terms" in forced.get("doubts", ())) == doubts[-1] and "unmet" not in forced
        assert kept["text"] == (free if doubts[-1] else forced)["text"]
        assert kept.get("unmet", False) == doubts[-1] and "terms" not in kept.get("doubts", ())
    assert True in doubts and False in doubts
    done = run("generate", model, *flags, "--device=cpu", stdin="".join(f"{line}\n" for line in lines).encode())
    count = f"check the translations of {sum(doubts)} lines, of which the first is standard input, line"
    assert count in " ".join(done.stderr.split())


def test_a_line_that_is_a_term_needs_no_model(model: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "terms", {"few  words": ("ein paar", "wenige"), "NATO": ("OTAN",), "to": ("zu",)})
    lines = generated(model, ["few words", "Few words", " NATO", "nato", "few words to"], *OPTIONS, "--glossary", path)
    hypotheses = [line["hypotheses"][0] for line in lines]
    texts = [each["text"] for each in hypotheses if each.get("origin") == "glossary"]
    assert texts == ["ein paar", "Ein paar", "OTAN"]
    assert hypotheses[0] == {"text": "ein paar", "origin": "glossary"}


def test_terms_that_the_training_text_hardly_had_are_named_once(model: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "terms", {"a": ("words", "xy"), "b": ("zyx",), "c": ("Łódź",)})
    done = run("generate", model, *OPTIONS, "--device=cpu", "--glossary", path, stdin=b"a few\na few\n")
    said = "probably rare in the training text: zyx, Łódź (2 of 3 target terms); check their sentences"
    assert " ".join(done.stderr.split()).count(said) == 1


def test_translations_have_the_terms_of_their_lines(model: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "terms", TERMS)
    plain = generated(model, LINES, *OPTIONS)
    lines = generated(model, LINES, *OPTIONS, "--glossary", path)
    for line, free in zip(lines, plain, strict=True):
        text, source = line["hypotheses"][0]["text"], line["source"]
        assert not line["hypotheses"][0].get("unmet")
        if "few words" in source:
            assert "um um" in text
        if re.search("few(?! words)", source):
            assert "xyz" in text
        if "earn" in source:
            assert re.search("[lL]ernt" if source.startswith("Learn") else "lernt", text)
        if "pieces" in source:
            assert re.search("q|zzzz", text)
        if not re.search("few|earn|pieces", source):
            assert line == free
    assert lines != plain


def test_several_translations_with_terms_differ_and_the_first_is_that_of_one(model: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "terms", TERMS)
    options = [*OPTIONS, "--min-length=1", "--glossary", path]
    both = zip(generated(model, LINES, *options, "--n-best=4"), generated(model, LINES, *options), strict=True)
    for hypotheses, (only,) in ((several["hypotheses"], single["hypotheses"]) for several, single in both):
        assert hypotheses[0]["text"] == only["text"]
        with_terms = [each["text"] for each in hypotheses if re.search("xyz|ernt|um um|zzzz", each["text"])]
        assert len(set(with_terms)) == len(with_terms)
        assert hypotheses == sorted(hypotheses, key=lambda each: each.get("unmet", False))


@pytest.mark.parametrize("options", [["--sample", "--samples=2"], ["--beam-groups=2"]])
def test_a_term_without_a_place_is_missing_where_search_cannot_require_it(
    model: Path, tmp_path: Path, options: list[str]
) -> None:
    path = written(tmp_path / "terms", {"few": ("xyz",), "learn": ("uvw",)})
    (line,) = generated(model, ["learn some few-words"], *OPTIONS, *options, "--glossary", path)
    assert all(each["unmet"] and "xyz" not in each["text"] for each in line["hypotheses"])
    assert any("uvw" in each["text"] for each in line["hypotheses"])  # which has a place


def test_a_term_without_a_place_is_searched_for_also_among_translations_of_the_least_risk(
    model: Path, tmp_path: Path
) -> None:
    path = written(tmp_path / "terms", {"few": ("xyz",)})
    options = ["--beam=3", "--n-best=3", "--mbr=chrf", "--glossary", path]
    (line,) = generated(model, ["some few-words"], *OPTIONS, *options)
    assert "xyz" in line["hypotheses"][0]["text"]


def test_the_model_chooses_among_the_forms(model: Path, tmp_path: Path) -> None:
    forms = ("words", "wovew", "mome", "few")
    path = written(tmp_path / "terms", {"some": forms})
    lines = [line for line in LINES if "some" in line]
    chosen = [
        {form for form in forms if form in line["hypotheses"][0]["text"]}
        for line in generated(model, lines, *OPTIONS, "--glossary", path)
    ]
    assert all(chosen) and len(set().union(*chosen)) > 1


def test_a_prefix_decides_on_the_terms_whose_place_is_in_it(model: Path, tmp_path: Path) -> None:
    unmet = set[bool]()
    for word in ("to", "few", "some", "learn", "and", "from"):
        path = written(tmp_path / word, {word: ("xyz",)})
        sources = [line for line in LINES[:-1] if f" {word}" in line]
        lines = [json.dumps({"source": source, "prefix": "m"}) for source in sources]
        options = [*OPTIONS, "--input-format=jsonl", "--glossary", path]
        for line in generated(model, lines, *options):
            (best,) = line["hypotheses"]
            assert best.get("unmet", False) == ("xyz" not in best["text"]) and best["text"].startswith("m")
            unmet.add(best.get("unmet", False))
        # What a prefix has decided on does not change the order of several translations.
        firsts = ([line["hypotheses"][0]["text"] for line in generated(model, lines, *options, *more)]
                  for more in ([], ["--n-best=4"]))  # fmt: skip
        assert len(set(map(tuple, firsts))) == 1
    assert unmet == {True, False}


def test_terms_join_the_constraints_of_a_line(model: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "terms", TERMS)
    line = json.dumps({"source": "some few", "prefix": "so", "constraints": [["k", "kk"]]})
    (translation,) = generated(model, [line], *OPTIONS, "--input-format=jsonl", "--glossary", path)
    text = translation["hypotheses"][0]["text"]
    assert text.startswith("so") and "xyz" in text and "k" in text
    assert translation["constraints"] == [["k", "kk"]]


@pytest.mark.parametrize("other", ["--sample", "--beam-groups=2", "--engine=ctranslate2"])
def test_searches_without_constraints_are_refused_at_once(other: str) -> None:
    said = other.replace("=", " ")
    message = f"error: --constraints x does not work with {said}; leave out one of them"
    assert failed("generate", "x", "--constraints=x", other) == message


@pytest.mark.parametrize("extra", [[], ["--html"]])
@pytest.mark.parametrize("line, longest", [("some few pieces " * 10, 20), ("𐍈 to", 4)])
def test_a_line_that_is_translated_in_parts_has_no_terms(
    model: Path, tmp_path: Path, line: str, longest: int, extra: list[str]
) -> None:
    path = written(tmp_path / "terms", TERMS | {"𐍈": ("xyz",)})
    command = ["generate", model, f"--max-source-length={longest}", "--device=cpu", "--max-length-offset=0", *extra]
    done = run(*command, "--glossary", path, stdin=line.encode())
    assert "the glossary is not used for standard input, line 1, which is too" in " ".join(done.stderr.split())
    assert done.stdout == run(*command, stdin=line.encode()).stdout


def test_lines_with_problems_are_counted_at_the_end(model: Path, tmp_path: Path) -> None:
    """The first line fits. The lines are in two files, and in several shards."""
    path = written(tmp_path / "terms", {"few": ("xyz " * 8,), "more": ("more",)})
    (tmp_path / "a").write_text("more\nto\n")
    (tmp_path / "b").write_text("more\nfew to\nto\nfew more\n")
    inputs = ["--input", tmp_path / "a", "--input", tmp_path / "b"]
    command = ["generate", model, *OPTIONS, "--device=cpu", "--glossary", path, *inputs]
    said = r"warning: check the translations of 2 lines, of which the first is \S*/b, line 2: they lack"
    for options in ([], ["--output", tmp_path / "out", "--shard-lines=1"]):
        done = run(*command, *options)
        assert re.search(said, done.stderr.splitlines()[-1]), done.stderr
    run(*command, "--output", tmp_path / "out", "--shard-lines=1", "--shard=1/1")
    assert re.search(said, run(*command, "--output", tmp_path / "out", "--shard-lines=1", "--merge").stderr)
    lines = generated(model, ["few to", "more"], *OPTIONS, "--glossary", path)
    assert [bool({"unmet", "doubts"} & {*line["hypotheses"][0]}) for line in lines] == [True, False]


def test_an_empty_glossary_flag_is_refused(model: Path) -> None:
    assert "--glossary is empty; give a value or leave it out" in failed("generate", model, "--glossary=")


# nmt serve


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("glossaries")
    first, second = written(folder / "first", TERMS), written(folder / "second", {"few": ("second",)})
    flags = [f"--glossary=first={first}", f"--glossary=second={second}"]
    with serving(model, "--precision=fp32", "--device=cpu", *flags) as running:
        yield running


def test_a_request_names_a_glossary(server: Server, model: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "terms", TERMS)
    options = {"max_length_offset": 12}
    expected = [line["hypotheses"][0]["text"] for line in generated(model, LINES, *OPTIONS, "--glossary", path)]
    answer = server.translate(LINES, glossary="first", split=False, **options)
    assert [translation["text"] for translation in answer["translations"]] == expected
    text = server.translate("Some few. A few", glossary="second", **options)["translations"][0]["text"]
    assert text.count("second") >= 2
    plain = server.translate("some few", **options)["translations"][0]["text"]
    assert plain == generated(model, ["some few"], *OPTIONS)[0]["hypotheses"][0]["text"]


def test_a_request_leaves_out_terms_that_make_a_translation_doubtful(server: Server) -> None:
    def hypotheses(**options: object) -> list[dict[str, Any]]:
        answer = server.translate(LINES[:8], split=False, max_length_offset=12, **options)
        return [translation["sentences"][0]["hypotheses"][0] for translation in answer["translations"]]

    free, forced = hypotheses(), hypotheses(glossary="first")
    kept = hypotheses(glossary="first", glossary_fallback=True)
    assert any("terms" in each.get("doubts", ()) for each in forced)
    expected = [
        (each if "terms" in new.get("doubts", ()) else new)["text"] for each, new in zip(free, forced, strict=True)
    ]
    assert [each["text"] for each in kept] == expected
    assert [each.get("unmet") for each in kept] == ["terms" in each.get("doubts", ()) or None for each in forced]


def test_a_request_takes_alternatives_of_a_constraint(server: Server) -> None:
    answer = server.translate("some", constraints=[["xyz", "um um"], "kk"], max_length_offset=20)
    text = answer["translations"][0]["text"]
    assert re.search("xyz|um um", text) and "kk" in text


@pytest.mark.parametrize("body, status, said", [
    ({"glossary": "third"}, 404, "there is no glossary 'third'; this server has first, second"),
    ({"glossary": 3}, 400, "glossary is wrong: "),
    ({"constraints": [["a"] * 17]}, 400, "constraints.0 is wrong: "),
    ({"constraints": [["a" * 10_000]]}, 413, "10,001 characters of text"),
])  # fmt: skip
def test_impossible_requests_are_refused(server: Server, body: dict[str, object], status: int, said: str) -> None:
    assert said in server.refused("/translate", {"source": "a", **body}, status)


def test_a_wrong_start_ends_in_one_sentence(model: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "terms", TERMS)
    assert "--glossary must be NAME=FILE, but is '=x'" in failed("serve", model, "--glossary==x")
    for flags in ([f"--glossary=terms={path}", f"--glossary={path}"], [f"--glossary=terms={path}"] * 2):
        assert "two glossaries are called terms; give " in failed("serve", model, *flags)
