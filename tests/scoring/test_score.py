"""`nmt score` and its library function give sacreBLEU's scores, and the paper's BLEU."""

import gzip
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import failed, run
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF, TER

import nmt
from nmt.config import ScoreConfig
from nmt.errors import NmtError
from nmt.scoring import compared_scores, corpus_scores, sentence_scores
from nmt.text.moses import Moses

HYPOTHESES = [
    "The cat sat on the mat.",
    "A man is riding a bicycle down the street.",
    "Two dogs, one black and one white, run across the grass.",
    "",
]
REFERENCES = [
    "The cat sat on a mat.",
    "A man rides his bicycle down the street.",
    "Two dogs, a black and a white one, are running across the grass.",
    "A child sleeps.",
]
OTHERS = [
    "A cat was sitting on the mat.",
    "A man is cycling down the street.",
    "A black dog and a white dog run across the grass.",
    "A child is asleep.",
]
SACREBLEU = {"bleu": BLEU, "chrf": CHRF, "ter": TER}
DETAILS = {"bleu": ["precisions", "bp", "ratio", "sys_len", "ref_len"], "chrf": [], "ter": ["num_edits", "ref_length"]}


def write(path: Path, lines: list[str]) -> str:
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return str(path)


# ------------------------------------------------------------------------------------------------ the library function


@pytest.mark.parametrize("hypotheses, references, wrong", [
    ([None], ["None"], "line 1 to score is None"),
    (["a", None], ["a", "b"], "line 2 to score is None"),
    (["a", "b"], ["a", None], "line 2 to score is None"),
    (["a"], [None], "line 1 to score is None"),
    ([None], [["None"], ["b"]], "line 1 to score is None"),
    (["b'a'"], [b"a"], "line 1 to score is 97"),
    ([1], ["1"], "line 1 to score is 1, but must be a string"),
    ([["a"]], ["a"], r"line 1 to score is \['a'\]"),
    (["a"], [["a"], "b"], r"line 1 to score is \['a'\]"),
    ([float("nan")], ["nan"], "line 1 to score is nan"),
])  # fmt: skip
def test_only_text_is_scored(hypotheses: list[Any], references: list[Any], wrong: str) -> None:
    with pytest.raises(TypeError, match=wrong):
        nmt.score(hypotheses, references)


@pytest.mark.parametrize("references", [[REFERENCES], [REFERENCES, OTHERS]], ids=["one reference", "two references"])
@pytest.mark.parametrize("name", SACREBLEU)
def test_every_metric_and_its_interval_equal_sacrebleus(name: str, references: list[list[str]]) -> None:
    hypotheses, metric = HYPOTHESES * 10, SACREBLEU[name]()
    references = [lines * 10 for lines in references]
    expected = metric.corpus_score(hypotheses, references, n_bootstrap=50)
    (plain,) = corpus_scores(hypotheses, references, [name], ScoreConfig())
    (score,) = corpus_scores(hypotheses, references, [name], ScoreConfig(bootstrap=50))
    assert (score.name, plain.score, score.score) == (expected.name, expected.score, expected.score)
    assert list(score.details.values()) == [getattr(expected, name) for name in DETAILS[name]]
    assert "|bs:50|seed:12345|" in score.signature == str(metric.get_signature())
    assert plain.signature == score.signature.replace("bs:50|seed:12345|", "")
    assert plain.confidence is None
    assert score.confidence is not None
    assert score.confidence.low < score.score < score.confidence.high
    mean, half_width = score.confidence.mean, (score.confidence.high - score.confidence.low) / 2
    assert f"μ = {mean:.2f} ± {half_width:.2f}" in str(expected)


CHINESE = ["猫坐在垫子上。", "他去北京看朋友了。"], ["猫坐在那垫子上。", "他到北京看了朋友。"]
JAPANESE = ["猫が座布団に座る。", "彼は東京に行きました。"], ["猫は座布団に座る。", "彼女は京都に行きました。"]


@pytest.mark.parametrize("lang, texts", [
    ("zh", CHINESE), ("zh_TW", CHINESE), ("zho_Hans", CHINESE), ("yue", CHINESE), ("ja", JAPANESE), ("jpn", JAPANESE),
])  # fmt: skip
def test_ter_counts_characters_of_chinese_and_japanese(lang: str, texts: tuple[list[str], list[str]]) -> None:
    hypotheses, references = texts
    expected = TER(normalized=True, asian_support=True)
    (score,) = corpus_scores(hypotheses, [references], ["ter"], ScoreConfig(target_lang=lang))
    assert score.score == expected.corpus_score(hypotheses, [references]).score < 60
    assert score.signature == str(expected.get_signature())
    assert corpus_scores(hypotheses, [references], ["ter"], ScoreConfig(target_lang="de"))[0].score == 100


def test_chrf_plus_plus_counts_words_too() -> None:
    (score,) = corpus_scores(HYPOTHESES, [REFERENCES], ["chrf++"], ScoreConfig())
    metric = CHRF(word_order=2)
    assert (score.name, score.score) == ("chrF2++", metric.corpus_score(HYPOTHESES, [REFERENCES]).score)
    assert "|nw:2|" in score.signature == str(metric.get_signature())


@pytest.mark.parametrize("name", [*SACREBLEU, "chrf++", "paper-bleu"])
@pytest.mark.parametrize("blank", ["", " ", "\u200b", "\ufeff"])
def test_a_blank_reference_is_none_if_there_is_another(name: str, blank: str) -> None:
    config = ScoreConfig(target_lang="en")
    first, second = [*REFERENCES[:3], blank], [OTHERS[0], blank, *OTHERS[2:]]
    (score,) = corpus_scores(HYPOTHESES, [first, second], [name], config)
    fewer = [(REFERENCES[0], OTHERS[0]), (REFERENCES[1],), (REFERENCES[2], OTHERS[2]), (OTHERS[3],)]
    if name in SACREBLEU:
        metric = SACREBLEU[name]()
        streams = [[row[0] for row in fewer], [row[1] if len(row) > 1 else None for row in fewer]]
        assert score.score == metric.corpus_score(HYPOTHESES, streams).score
    assert score.signature.startswith("nrefs:var|")
    (paired, *_), _ = compared_scores([HYPOTHESES, OTHERS], [first, second], [name], config)
    assert paired.score == score.score
    (alone,) = corpus_scores(HYPOTHESES, [first], [name], config)
    assert alone.signature.startswith("nrefs:1|")  # the only reference counts, even if it is blank


@pytest.mark.parametrize("name", [*SACREBLEU, "chrf++"])
def test_each_sentence_has_the_score_that_sacrebleu_gives_it(name: str) -> None:
    metrics = {"bleu": BLEU(effective_order=True), "chrf": CHRF(), "chrf++": CHRF(word_order=2), "ter": TER()}
    scores = sentence_scores(HYPOTHESES, [REFERENCES, ["", *OTHERS[1:]]], name, ScoreConfig())
    for score, hypothesis, *references in zip(scores, HYPOTHESES, REFERENCES, OTHERS, strict=True):
        if hypothesis == HYPOTHESES[0]:
            references.pop()
        assert score.score == metrics[name].sentence_score(hypothesis, references).score
        assert score.signature.startswith("nrefs:var|")


def edits(a: Sequence[str], b: Sequence[str]) -> int:
    """Returns the edit distance, computed row by row."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
    return row[-1]


SHORT = st.text("ab ", max_size=9).map(lambda text: " ".join(text.split()))


@given(st.lists(st.tuples(SHORT, SHORT, SHORT), min_size=1, max_size=5))
def test_error_rates_and_exact_matches(lines: list[tuple[str, str, str]]) -> None:
    outputs, first, second = (list(each) for each in zip(*lines, strict=True))
    exact, wer, cer = corpus_scores(outputs, [first], ["exact", "wer", "cer"], ScoreConfig())
    assert exact.score == 100 * sum(map(str.__eq__, outputs, first)) / len(lines)
    for score, units in (wer, str.split), (cer, list[str]):
        errors = [edits(units(output), units(reference)) for output, reference in zip(outputs, first, strict=True)]
        assert score.score == pytest.approx(100 * sum(errors) / max(1, sum(len(units(line)) for line in first)))
    (either,) = corpus_scores(outputs, [first, second], ["exact"], ScoreConfig())
    best = [output in (list(filter(None, (a, b))) or [""]) for output, a, b in lines]  # a blank one is none
    assert either.score == 100 * sum(best) / len(lines)


def test_lowercase_ignores_case() -> None:
    shouted = [line.upper() for line in REFERENCES]
    assert corpus_scores(shouted, [REFERENCES], ["bleu"], ScoreConfig())[0].score < 10
    (bleu, chrf) = corpus_scores(shouted, [REFERENCES], ["bleu", "chrf"], ScoreConfig(lowercase=True))
    assert (bleu.score, chrf.score) == (pytest.approx(100), pytest.approx(100))
    assert "case:lc" in bleu.signature
    assert "case:lc" in chrf.signature


@pytest.mark.parametrize("tokenize", ["13a", "none", "intl", "char", "zh"])
def test_every_tokeniser_gives_sacrebleus_score_whatever_the_language(tokenize: str) -> None:
    (score,) = corpus_scores(HYPOTHESES, [REFERENCES], ["bleu"], ScoreConfig(tokenize=tokenize, target_lang="zh"))
    assert score.score == BLEU(tokenize=tokenize).corpus_score(HYPOTHESES, [REFERENCES]).score
    assert f"tok:{tokenize}" in score.signature


@pytest.mark.parametrize("hypotheses, references, message", [
    (["a"], [["a", "b"]], "translations and references must be equally many, but are 1 and 2"),
    ([], [[]], "nothing to score"),
    (["a"], [], "nothing to score"),
])  # fmt: skip
def test_too_few_lines_are_refused(hypotheses: list[str], references: list[list[str]], message: str) -> None:
    with pytest.raises(NmtError, match=message):
        corpus_scores(hypotheses, references, ["bleu"], ScoreConfig())


def test_the_library_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    corpus_scores(["It is tokenised ."] * 200, [["It is tokenised ."] * 200], ["bleu"], ScoreConfig())
    assert capfd.readouterr() == ("", "")


# -------------------------------------------------------------------------------------------------------- the command


def test_each_metric_has_its_interval_and_its_signature(tmp_path: Path) -> None:
    reference = write(tmp_path / "ref.en", REFERENCES)
    command = [sys.executable, "-m", "nmt", "score", f"--reference={reference}"]
    command += ["--metric=bleu", "--metric=chrf", "--metric=ter"]
    pipe = "".join(line + "\n" for line in HYPOTHESES).encode()
    done = subprocess.run(command, input=pipe, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    bleu, precisions_line, bleu_signature, chrf, chrf_signature, ter, edits_line, _ = done.stdout.decode().splitlines()
    expected = BLEU().corpus_score(HYPOTHESES, [REFERENCES])
    precisions = "/".join(f"{p:.1f}" for p in expected.precisions)
    interval = re.fullmatch(r"BLEU ([\d.]+), with 95 % confidence between ([\d.]+) and ([\d.]+)", bleu)
    assert interval and interval[1] == f"{expected.score:.2f}"
    sampled = BLEU().corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=1000)
    assert float(interval[3]) - float(interval[2]) == pytest.approx(2 * sampled._ci, abs=0.011)
    assert precisions_line == (
        f"precisions {precisions}, brevity penalty {expected.bp:.3f}, length ratio {expected.ratio:.3f}, "
        f"hypothesis length {expected.sys_len}, reference length {expected.ref_len}"
    )
    assert bleu_signature.startswith("signature nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|")
    assert chrf.startswith(f"chrF2 {CHRF().corpus_score(HYPOTHESES, [REFERENCES]).score:.2f}, with 95 % confidence")
    assert chrf_signature.startswith("signature nrefs:1|bs:1000|")
    edits = TER().corpus_score(HYPOTHESES, [REFERENCES])
    assert ter.startswith(f"TER {edits.score:.2f}, ") and edits_line == f"edits {edits.num_edits}, reference length 30"


def test_long_texts_have_no_interval_unless_it_is_asked_for(tmp_path: Path) -> None:
    long, short = (write(tmp_path / str(size), ["A cat sleeps here."] * size) for size in (5001, 5000))
    for path, interval in ((long, ""), (short, ", with 95 % confidence between 100.00 and 100.00")):
        done = run("score", f"--reference={path}", f"--hypothesis={path}")
        assert done.stdout.decode().splitlines()[0] == f"BLEU 100.00{interval}"


def test_the_references_of_a_table_are_scored(tmp_path: Path) -> None:
    table = tmp_path / "test.csv"
    table.write_text("Nr;Deutsch;Französisch\n" + "".join(f"{i};b {i};a {line}\n" for i, line in enumerate(REFERENCES)))
    text = write(tmp_path / "text", [f"a {line}" for line in REFERENCES])
    langs = "--source-lang=de", "--target-lang=fr"
    done = run("score", f"--reference={table}", f"--hypothesis={text}", *langs)
    assert done.stdout.startswith(b"BLEU 100.00")
    message = failed("score", f"--reference={table}", f"--hypothesis={text}", langs[1])
    assert f"{table} has two languages; give --source-lang and --target-lang" in message


def test_json_output_has_all_metrics_against_all_references(tmp_path: Path) -> None:
    first, second = tmp_path / "a.gz", write(tmp_path / "b", OTHERS)
    first.write_bytes(gzip.compress("\n".join([*REFERENCES, ""]).encode()))
    files = ["--reference", first, "--reference", second, "--hypothesis", write(tmp_path / "h", HYPOTHESES)]
    options = ["--metric=ter", "--metric=bleu", "--metric=ter", "--bootstrap=20", "--json"]
    done = run("score", *files, *options)
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert list(report) == ["ter", "bleu"]
    assert report["bleu"]["score"] == BLEU().corpus_score(HYPOTHESES, [REFERENCES, OTHERS]).score
    assert report["ter"]["details"].keys() == {"edits", "reference_length"}
    assert report["bleu"]["confidence"]["low"] < report["bleu"]["confidence"]["high"]
    assert report["ter"]["signature"].startswith("nrefs:2|bs:20|seed:12345|")


def test_the_scores_of_sentences_are_lines_of_numbers(tmp_path: Path) -> None:
    reference = write(tmp_path / "ref.en", REFERENCES)
    command = ["score", "--reference", reference, "--sentence-level", "--metric=bleu", "--metric=chrf++"]
    text = "".join(line + "\n" for line in HYPOTHESES).encode()
    done = run(*command, stdin=text)
    scores = [BLEU(effective_order=True), CHRF(word_order=2)]
    expected = [
        [metric.sentence_score(*pair).score for metric in scores]
        for pair in zip(HYPOTHESES, ([line] for line in REFERENCES), strict=True)
    ]
    lines = done.stdout.decode().splitlines()
    assert lines == [f"{bleu:.2f}\t{chrf:.2f}" for bleu, chrf in expected]
    assert "BLEU nrefs:1|case:mixed|eff:yes|" in done.stderr and "chrF2++ nrefs:1|" in done.stderr
    report = json.loads(run(*command, "--json", stdin=text).stdout)
    assert list(zip(report["bleu"]["scores"], report["chrf++"]["scores"], strict=True)) == list(map(tuple, expected))
    assert "eff:yes" in report["bleu"]["signature"]
    for options in (["--bootstrap=9"], ["--metric=paper-bleu"], ["--hypothesis", reference, "--hypothesis", reference]):
        assert "--sentence-level " in failed(*command, *options, stdin=text)


@pytest.mark.parametrize("begin", [
    '<refset setid="newstest2014-deen" srclang="any" trglang="en">',
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE mteval SYSTEM "ftp://jaguar.ncsl.nist.gov/mteval-xml.dtd">',
    '\ufeff<dataset id="wmt21">',
    '  <DOC docid="1">',
])  # fmt: skip
def test_references_of_wmt_must_be_made_text(tmp_path: Path, begin: str) -> None:
    lines = [*begin.split("\n"), '<seg id="1">A cat &amp; a dog.</seg>', '  <seg id="2" >  No.</seg>', "</doc>"]
    path, text = write(tmp_path / "ref.sgm", lines), write(tmp_path / "text", ["a"] * len(lines))
    message = failed("score", "--reference", path, "--hypothesis", text)
    assert f"{path} is SGML or XML; give the text of its <seg> elements" in message
    assert "is SGML or XML" in failed("score", "--reference", text, "--hypothesis", path)
    command = message[message.index("sed -n") : message.index(" FILE")]
    printed = subprocess.run(f"{command} {path}", shell=True, capture_output=True, check=True).stdout
    assert printed == b"A cat &amp; a dog.\n  No.\n"


def test_a_system_that_is_nearly_empty_has_an_interval_of_chrf() -> None:
    """Some samples of it have no characters at all."""
    hypotheses, references = ["Haus", *[""] * 9], ["Haus", *["Der Baum ist hier."] * 9]
    (score,) = corpus_scores(hypotheses, [references], ["chrf"], ScoreConfig(bootstrap=50))
    assert score.confidence is not None and score.confidence.low < score.score < score.confidence.high


def test_references_that_are_nearly_empty_have_an_interval_of_ter() -> None:
    """Some samples of them have no words at all."""
    hypotheses, references = ["x y", "x y", "z"], ["a b", "a b", ""]
    (score,) = corpus_scores(hypotheses, [references], ["ter"], ScoreConfig(bootstrap=50))
    assert score.confidence is not None and score.confidence.low < score.score < score.confidence.high


def test_bootstrap_adds_the_confidence_interval_to_the_line(tmp_path: Path) -> None:
    reference = write(tmp_path / "ref", REFERENCES)
    done = run("score", "--reference", reference, "--hypothesis", reference, "--bootstrap", "10", "--lowercase")
    assert done.stdout.decode().startswith("BLEU 100.00, with 95 % confidence between 100.00 and 100.00\n")


def test_tokenised_text_gets_a_warning(tmp_path: Path) -> None:
    reference = write(tmp_path / "ref", ["It is tokenised ."])
    done = run("score", "--reference", reference, "--hypothesis", reference)
    assert f"warning: 1 of 1 lines of {reference} end in ' .'" in done.stderr
    assert done.stderr.endswith(", or give --tokenize none to score tokenised text\n")
    assert run("score", "--reference", reference, "--hypothesis", reference, "--tokenize", "none").stderr == ""
    other = run("score", "--reference", reference, "--hypothesis", reference, "--metric", "chrf")
    assert other.stderr.endswith("; detokenise the text first\n")


def test_files_that_cannot_be_scored_are_refused(tmp_path: Path) -> None:
    reference, empty = write(tmp_path / "ref", REFERENCES), write(tmp_path / "empty", [])
    done = run("score", "--reference", reference, stdin=b"one\ntwo\n", code=1)
    assert done.stderr.startswith(f"error: standard input has 2 lines but {reference} has 4; ")
    assert (done.stdout, done.stderr.count("\n")) == (b"", 1)
    assert "standard input is empty" in failed("score", "--reference", reference)
    assert f"{empty} is empty" in failed("score", "--reference", empty, "--hypothesis", reference)


@pytest.mark.parametrize("options, message", [
    ("--reference=-", "only one of --hypothesis, --reference and --source can be standard input"),
    ("--model=x --source=y", "--model is for an estimate without --reference; leave out one of them"),
    ("--hypothesis=out.tsv", "--hypothesis out.tsv has the name of a table, JSON or archive"),
    ("--metric=meteor", "--metric must be one of bleu, chrf, chrf++, ter"),
    ("--tokenize=moses", "--tokenize moses is unknown; it must be one of none, "),
    ("--bootstrap=1", "--bootstrap must be at least 2"),
    ("--metric=paper-bleu", "paper-bleu needs --target-lang with the two letters of the language; add it, such as"),
    ("--metric=paper-bleu --target-lang=deu", "with the two letters of the language, but is 'deu'"),
    ("--metric=chrf --tokenize=none", "--tokenize none needs --metric bleu or"),
])  # fmt: skip
def test_wrong_options_are_refused(tmp_path: Path, options: str, message: str) -> None:
    assert message in failed("score", "--reference", write(tmp_path / "ref", ["a"]), *options.split(), stdin=b"a\n")


def test_the_files_of_an_estimate_are_checked() -> None:
    assert "--source t.csv has the name of a table" in failed("score", "--model=x", "--source=t.csv", "--hypothesis=y")
    assert "only one of --hypothesis, --reference and --source can be" in failed("score", "--model=x", "--source=-")


@pytest.mark.parametrize("option", ["--metric=ter", "--sentence-level", "--bootstrap=100"])
def test_an_estimate_has_no_options_of_scores(option: str) -> None:
    flag = option.partition("=")[0]
    assert failed("score", "--model=x", "--source=y", option) == f"error: {flag} needs --reference; leave it out"


# ------------------------------------------------------------------------------------------------- the paper's BLEU


def multi_bleu(hypotheses: list[str], references: list[str]) -> float:
    """Computes BLEU as multi-bleu.perl does, with one reference and with spaces between tokens."""
    product = 1.0
    for n in range(1, 5):
        counts, reference_counts = ([n_grams(line, n) for line in side] for side in (hypotheses, references))
        correct = sum((a & b).total() for a, b in zip(counts, reference_counts, strict=True))
        product *= correct / max(1, sum(map(Counter.total, counts)))
    length, reference_length = (sum(len(line.split()) for line in side) for side in (hypotheses, references))
    return 100 * min(1.0, math.exp(1 - reference_length / max(1, length))) * product ** (1 / 4)


def n_grams(line: str, n: int) -> Counter[tuple[str, ...]]:
    words = line.split()
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def test_paper_bleu_equals_a_score_computed_by_hand() -> None:
    """Quotes become ASCII, the stop becomes a token, and the compound becomes three tokens: 9 tokens against 10."""
    hypothesis, reference = ["Ein “Text-Editor” hilft sehr."], ['Ein "Text-Editor" hilft uns sehr.']
    (score,) = corpus_scores(hypothesis, [reference], ["paper-bleu"], ScoreConfig(target_lang="de"))
    # Ein " Text ##AT##-##AT## Editor " hilft [uns] sehr . : of the n-grams, 9/9, 7/8, 5/7 and 4/6 match.
    expected = 100 * math.exp(1 - 10 / 9) * (9 / 9 * 7 / 8 * 5 / 7 * 4 / 6) ** 0.25
    assert score.score == pytest.approx(expected, abs=1e-6)
    (whole,) = corpus_scores(hypothesis, [reference], ["paper-bleu"], ScoreConfig(target_lang="fr"))
    # Ein " Text-Editor " hilft [uns] sehr . : 7 tokens against 8; of the n-grams, 7/7, 5/6, 3/5 and 2/4 match.
    assert whole.score == pytest.approx(100 * math.exp(1 - 8 / 7) * (5 / 6 * 3 / 5 * 2 / 4) ** 0.25, abs=1e-6)
    assert "compounds:split" in score.signature
    assert "compounds:whole" in whole.signature


PUNCTUATED = {
    "de": ["„Ja“, sagte sie – ohne ‚Wenn‘ —, ‘so’ ist’s…", "Die Rolle (1990–95) des «Faust»…", "Kurz: „Text-Editor“."],
    "fr": ["« Oui », dit-elle – « l’ami »…", "Il a dit : « 1 000 € » !", "“Paris” —l’été— ‚ et ´ ci"],
}


@pytest.mark.parametrize("lang", PUNCTUATED)
def test_paper_bleu_does_not_depend_on_the_punctuation_that_a_model_has_learnt(lang: str) -> None:
    check_punctuation(lang, PUNCTUATED[lang])


@pytest.mark.nightly
@pytest.mark.skipif("NEWSTEST" not in os.environ, reason="NEWSTEST names a folder with newstest2014.en-de.de.gz, …")
@pytest.mark.parametrize("lang", PUNCTUATED)
def test_paper_bleu_does_not_depend_on_the_punctuation_of_newstest2014(lang: str) -> None:
    with gzip.open(Path(os.environ["NEWSTEST"]) / f"newstest2014.en-{lang}.{lang}.gz", "rt", newline="\n") as file:
        check_punctuation(lang, [line.removesuffix("\n") for line in file])


def check_punctuation(lang: str, reference: list[str]) -> None:
    """Checks that what a perfect model writes scores 100, whichever --normalize-punctuation it was trained with."""
    for normalize in (False, True):
        moses = Moses(lang, normalize)
        translations = [moses.detokenize(moses.tokenize(line)) for line in reference]
        assert (translations == reference) == (not normalize)
        for hypotheses, references in ((translations, reference), (reference, translations)):
            scores = corpus_scores(hypotheses, [references], ["paper-bleu"], ScoreConfig(target_lang=lang))
            assert scores[0].score == pytest.approx(100)


@given(st.lists(st.tuples(*[st.lists(st.sampled_from("abcdef"), max_size=12)] * 2), min_size=1, max_size=6))
def test_paper_bleu_equals_multi_bleu(pairs: list[tuple[list[str], list[str]]]) -> None:
    hypotheses, references = ([" ".join(words) for words in side] for side in zip(*pairs, strict=True))
    (score,) = corpus_scores(hypotheses, [references], ["paper-bleu"], ScoreConfig(target_lang="de"))
    assert score.score == pytest.approx(multi_bleu(hypotheses, references), abs=1e-6)


def test_paper_bleu_is_always_printed_with_sacrebleus_bleu(tmp_path: Path) -> None:
    reference = write(tmp_path / "ref", REFERENCES)
    options = ["--reference", reference, "--metric", "paper-bleu", "--target-lang", "en"]
    done = run("score", *options, stdin="\n".join([*REFERENCES, ""]).encode())
    first, _, _, second, *_ = done.stdout.decode().splitlines()
    assert first.startswith("BLEU 100.00")
    assert second.startswith("paper-BLEU 100.00")
    assert "cite sacreBLEU's BLEU" in done.stderr
