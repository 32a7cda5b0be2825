"""BLEU uses the tokeniser of the target language, and languages without spaces go through all commands."""

import random
from pathlib import Path

import pytest
from commands import failed, records, run, train
from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers import tokenizer_ja_mecab, tokenizer_ko_mecab
from sacrebleu.tokenizers.tokenizer_ja_mecab import TokenizerJaMecab
from sacrebleu.tokenizers.tokenizer_ko_mecab import TokenizerKoMecab

from nmt.config import ScoreConfig
from nmt.scoring import corpus_scores

HYPOTHESES = ["他昨天去了北京，见到老朋友。", "我不知道（真的）。"]
REFERENCES = ["他昨天到了北京，见到了老朋友。", "我真的不知道。"]


@pytest.fixture
def no_analysers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    monkeypatch.setattr(tokenizer_ko_mecab, "MeCab", None)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name, lines in {"ref": REFERENCES, "hyp": HYPOTHESES}.items():
        (tmp_path / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
    return ["--reference", str(tmp_path / "ref"), "--hypothesis", str(tmp_path / "hyp")]


@pytest.mark.parametrize("lang, tokenizer", [
    ("zh", "zh"), ("zh_TW", "zh"), ("zho_Hans", "zh"), ("yue", "zh"),
    ("th", "char"), ("my", "char"), ("khm_Khmr", "char"), ("ja", "char"), ("ko-KR", "char"),
    ("de", "13a"), ("vi", "13a"), ("xx", "13a"), (None, "13a"),
])  # fmt: skip
@pytest.mark.usefixtures("no_analysers")
def test_bleu_uses_the_tokeniser_of_the_target_language(lang: str | None, tokenizer: str) -> None:
    (score,) = corpus_scores(HYPOTHESES, [REFERENCES], ["bleu"], ScoreConfig(target_lang=lang))
    assert f"|tok:{tokenizer}|" in score.signature
    assert score.score == BLEU(tokenize=tokenizer).corpus_score(HYPOTHESES, [REFERENCES]).score


@pytest.mark.parametrize("lang, analyser", [("ja", TokenizerJaMecab), ("ko", TokenizerKoMecab)])
def test_bleu_uses_an_analyser_that_is_installed(lang: str, analyser: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyser, "__init__", lambda _: None)
    monkeypatch.setattr(analyser, "__call__", lambda _, line: " ".join(line))
    monkeypatch.setattr(analyser, "signature", lambda _: f"{lang}-mecab-0.1")
    (score,) = corpus_scores(HYPOTHESES, [REFERENCES], ["bleu"], ScoreConfig(target_lang=lang))
    assert f"|tok:{lang}-mecab-0.1|" in score.signature


@pytest.mark.usefixtures("no_analysers")
def test_scores_report_a_missing_analyser_or_language(files: list[str]) -> None:
    done = run("score", *files, "--target-lang", "ja")
    assert "|tok:char|" in done.stdout.decode()
    assert "pip install 'sacrebleu[ja]'" in done.stderr
    assert "--tokenize ja-mecab cannot be set up here: " in failed("score", *files, "--tokenize", "ja-mecab")
    assert run("score", *files, "--target-lang", "zh").stderr == ""
    assert "2 of 2 reference lines are in a script without spaces" in run("score", *files).stderr
    assert run("score", *files, "--tokenize", "13a").stderr == ""


def test_a_model_for_chinese_is_trained_and_scored_over_characters(tmp_path: Path) -> None:
    draw = random.Random(1)
    for name, pairs in (("train", 100), ("valid", 4)):
        texts = ["".join(draw.choices("天地玄黄宇宙洪荒", k=draw.randint(4, 9))) for _ in range(pairs)]
        (tmp_path / f"{name}.zh").write_bytes("".join(f"「{text}」。\n" for text in texts).encode())
        (tmp_path / f"{name}.en").write_bytes("".join(f"({' '.join(text)}).\n" for text in texts).encode())
    corpora = [f"--{name}={tmp_path / name}" for name in ("train", "valid")]
    options = ["--source-lang=en", "--target-lang=zh", "--vocab-size=310", "--workers=1"]
    options += ["--tokenizer=moses", "--normalize-punctuation=source"]
    log = run("preprocess", *options, *corpora, f"--dest={tmp_path / 'data'}").stderr
    assert "tokenisation: en moses-en, zh moses-zh; --normalize-punctuation source" in log

    train(tmp_path / "data", tmp_path / "run", "--max-updates=20")
    (valid,) = records(tmp_path / "run", "valid")
    assert [sample["reference"] for sample in valid["samples"]] == (tmp_path / "valid.zh").read_text().split("\n")[:-1]
    outputs, references = ([sample[key] for sample in valid["samples"]] for key in ("output", "reference"))
    assert all(outputs)  # there is something to score
    metric = BLEU(tokenize="zh")
    assert valid["bleu"] == metric.corpus_score(outputs, [references]).score
    assert valid["bleu_signature"] == str(metric.get_signature())

    source = (tmp_path / "valid.en").read_bytes().split(b"\n")[0] + b"\n"
    options = ["--max-source-length=5", "--min-length=3", "--max-length-offset=1"]
    in_parts = run("generate", tmp_path / "run" / "best.safetensors", *options, stdin=source).stdout.decode()
    assert len(in_parts) > 6
    assert " " not in in_parts

    run("report", tmp_path / "run", "--output", tmp_path / "report.html")
    assert valid["bleu_signature"] in (tmp_path / "report.html").read_text()
