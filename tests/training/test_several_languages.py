"""One model of several languages: from files of every two of them to a data folder, a model and translations."""

import json
import math
import re
import shlex
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import CONFIG
from commands import failed, records, run, train
from conftest import invented_pairs
from torch.nn import functional as F

import nmt
from nmt.checkpoint import build_model
from nmt.config import DataConfig
from nmt.data.batching import make_plan
from nmt.data.folder import DataFolder
from nmt.data.loader import make_micro_batch, make_update
from nmt.errors import NmtError
from nmt.model.transformer import Transformer
from nmt.text.directions import Direction
from nmt.text.subword import BOS, EOS, PAD
from nmt.text.text_config import CONTEXT_PIECE
from nmt.training.loss import TrainingLoss

LANGUAGES = ("en", "de", "fr")
BOTH_WAYS = ["en de", "de en", "en fr", "fr en"]
NAMES = [direction.replace(" ", "-") for direction in BOTH_WAYS]
# English is spelt backwards in German, and in capitals in French.
IN_LANGUAGE = {"en": lambda pair: pair[0], "de": lambda pair: pair[1], "fr": lambda pair: pair[0].upper()}


def write(path: Path, lang: str, pairs: list[tuple[str, str]]) -> None:
    path.write_text("".join(f"{IN_LANGUAGE[lang](pair)}\n" for pair in pairs))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with news.en and news.de, web.fr-en.en and web.fr-en.fr, and valid and test in all languages."""
    folder = tmp_path_factory.mktemp("languages")
    news, web, valid, test = (invented_pairs(size, seed) for seed, size in enumerate((120, 60, 24, 6)))
    for lang in ("en", "de"):
        write(folder / f"news.{lang}", lang, news)
    for lang in ("en", "fr"):
        write(folder / f"web.fr-en.{lang}", lang, web)
    for lang in LANGUAGES:
        write(folder / f"valid.{lang}", lang, valid)
        write(folder / f"test.{lang}", lang, test)
    return folder


def preprocess(text: Path, dest: Path, *options: str) -> str:
    files = [f"--train={text}/news", f"--train={text}/web", f"--valid={text}/valid", f"--test={text}/test"]
    size = [] if any(option.startswith("--like") for option in options) else ["--vocab-size=340"]
    return run("preprocess", "--languages=en,de,fr", *files, *size, f"--dest={dest}", "--workers=1", *options).stderr


@pytest.fixture(scope="module")
def made(text: Path) -> Path:
    """Returns the folder with a data folder for each placement of tokens, in both directions."""
    for placement in ("target_on_source", "both_sides"):
        log = preprocess(text, text / placement, "--both-ways", f"--language-tokens={placement}")
        # Each of the four files once, although two directions have it.
        assert "model of 340 pieces on 360 lines of de, en, fr" in log
    return text


@pytest.fixture(scope="module")
def trained_placements(made: Path) -> dict[str, str]:
    """Trains a model for each placement, into the folder that has its name and `-run`; returns the logs."""
    metrics = {"target_on_source": ["--valid-metric=chrf", "--valid-metric=bleu"], "both_sides": ["--valid-metric=nll"]}
    options = ["--max-updates=20", "--valid-lines=2"]
    return {name: train(made / name, made / f"{name}-run", *options, *metrics[name]) for name in metrics}


@pytest.mark.parametrize("placement", ["target_on_source", "both_sides"])
def test_ids_have_the_tokens_of_languages_and_meta_the_directions(made: Path, placement: str) -> None:
    data = DataFolder.open(made / placement)
    config, split, described = data.codec.config, data.split("train"), data.meta.splits["train"]
    assert (config.source_lang, config.target_lang, config.languages) == ("mul", "mul", LANGUAGES)
    assert (list(config.directions), list(described.directions)) == (BOTH_WAYS, BOTH_WAYS)
    assert list(described.sizes) == [120, 120, 60, 60]
    assert [Path(prefix).name for prefix in described.corpora] == ["news", "news", "web", "web"]
    token = dict(zip(LANGUAGES, data.codec.source.ids([f"<2{lang}>" for lang in LANGUAGES]), strict=True))
    pairs = iter(range(len(split)))
    for direction, prefix, size in zip(BOTH_WAYS, ["news"] * 2 + ["web.fr-en"] * 2, described.sizes, strict=True):
        source, target = direction.split()
        sides = [(made / f"{prefix}.{lang}").read_text().splitlines() for lang in (source, target)]
        tokens, given = ([token[target]], []) if placement == "target_on_source" else ([token[source]], [token[target]])
        for ids, other_ids in zip(data.codec.encode_source(sides[0]), data.codec.encode_target(sides[1]), strict=True):
            index = next(pairs)
            assert split.source[index].tolist() == [*tokens, *ids]
            assert split.target[index].tolist() == [*given, *other_ids]
        assert size == len(sides[0])
    assert split.given == (placement == "both_sides")
    assert data.directions("test") == {
        Direction(*direction.split()): range(6 * i, 6 * i + 6) for i, direction in enumerate(BOTH_WAYS)
    }
    french = (made / "test.fr").read_text().splitlines()
    assert data.raw_lines("test", Direction("fr", "en"))[0] == french
    assert (made / placement / "test.en-fr.fr.txt").read_text().splitlines() == french
    assert len(list((made / placement).glob("*.tokens"))) == 6


@pytest.mark.parametrize("packs", [False, True])
def test_a_token_that_is_given_is_not_in_the_loss(made: Path, packs: bool) -> None:
    """The reference sums the cross-entropy of all pieces behind the token, one sentence at a time."""
    data = DataFolder.open(made / "both_sides")
    split, pairs = data.split("train"), np.array([3, 130, 250, 359])
    batch = make_micro_batch(split, [pairs[:2], pairs[2:]], packs=packs)
    torch.manual_seed(0)
    size = len(data.codec.target)
    model = Transformer(replace(CONFIG, dropout=0.0), size, size, shared=True)
    expected = labels = 0
    for pair in pairs:
        source, target = split.source[pair].tolist(), split.target[pair].tolist()
        logits_TV = model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]]))[0]
        pieces = [*target[1:], EOS]
        expected += F.cross_entropy(logits_TV[1:], torch.tensor(pieces), reduction="sum")
        labels += len(pieces)
    assert batch.target_tokens == labels == int((batch.labels_M != PAD).sum())
    if not packs:
        torch.testing.assert_close(TrainingLoss(model, 0.0)(batch)[1], expected.detach(), rtol=1e-5, atol=0)
    plan = make_plan(
        (split.source.lengths, split.target.lengths), batch_tokens=700, groups=2, seed=0, epoch=0, given=split.given
    )
    tokens = [make_update(split, plan, i, 500, 0, 1, packs=packs) for i in range(len(plan))]
    for update in tokens:
        assert update.target_tokens == sum(int((part.labels_M != PAD).sum()) for part in update.batches)
    assert sum(update.target_tokens for update in tokens) == plan.totals[1]


@pytest.mark.parametrize("placement", ["target_on_source", "both_sides"])
def test_validation_scores_each_direction_and_their_mean(
    made: Path, trained_placements: dict[str, str], placement: str
) -> None:
    """The loss of a direction is what `nmt rescore` says of its text."""
    folder, log = made / f"{placement}-run", trained_placements[placement]
    last = records(folder, "valid")[-1]
    assert list(last["directions"]) == NAMES
    is_translated = placement == "target_on_source"
    for name in ("nll", "bleu", "chrf") if is_translated else ("nll",):
        values = [scores[name] for scores in last["directions"].values()]
        assert last[name] == pytest.approx(sum(values) / 4)
    assert [sample["direction"] for sample in last["samples"]] == [name for name in NAMES for _ in range(2)]
    for name in NAMES:
        source, target = name.split("-")
        files = [f"--source={made}/valid.{source}", f"--target={made}/valid.{target}"]
        langs = [f"--source-lang={source}", f"--target-lang={target}"]
        said = run("rescore", folder / "best.safetensors", *files, *langs, "--device=cpu", "--precision=fp32").stderr
        update = json.loads(run("info", folder / "best.safetensors", "--json").stdout)["validation"]["update"]
        (best_record,) = (record for record in records(folder, "valid") if record["update"] == update)
        perplexity = float(re.search(r"perplexity ([\d.,]+) per piece", said)[1].replace(",", ""))  # type: ignore[index]
        assert math.log(perplexity) == pytest.approx(best_record["directions"][name]["nll"], abs=1e-4)
        shown = rf"^  {name}  nll {last['directions'][name]['nll']:.3f}, ppl [\d.]+{', BLEU .*, chrF' * is_translated}"
        assert re.search(shown, log, re.MULTILINE)


@pytest.mark.parametrize("placement", ["target_on_source", "both_sides"])
def test_the_model_translates_in_all_directions(made: Path, trained_placements: dict[str, str], placement: str) -> None:
    best = made / f"{placement}-run" / "best.safetensors"
    for source, target in permutations(LANGUAGES, 2):
        langs = [f"--source-lang={source}", f"--target-lang={target}"]
        done = run("generate", best, *langs, f"--input={made}/test.{source}", "--max-length-offset=5", "--device=cpu")
        assert done.stdout.count(b"\n") == 6
        assert ("was not trained on the direction" in done.stderr) == ("en" not in (source, target))
    log = re.sub(r" \\\n +", " ", trained_placements[placement])
    commands = [line for line in log.splitlines() if line.split("  ")[-1].startswith("nmt ")]
    generate = next(command for command in commands if "nmt generate" in command)
    words = shlex.split(generate[generate.index("nmt generate") + 4 :])
    assert words[2:6] == ["--source-lang", "en", "--target-lang", "de"]
    assert words[7] == str(made / placement / "test.en-de.en.txt")
    info = run("info", made / placement).stdout.decode()
    assert "de, en, fr in 4 directions" in info
    assert "en-de, de-en, en-fr, fr-en" in info
    page = made / f"{placement}.html"
    run("report", made / f"{placement}-run", "--output", page)
    (run_data,) = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)[1])["runs"]  # type: ignore[index]
    last = records(made / f"{placement}-run", "valid")[-1]
    assert {name: columns["nll"][-1] for name, columns in run_data["directions"].items()} == {
        name: pytest.approx(scores["nll"], rel=1e-6) for name, scores in last["directions"].items()
    }
    assert {sample["direction"] for sample in run_data["samples"]} == set(NAMES)


def test_a_model_of_several_languages_is_tuned_in_other_directions(
    made: Path, trained_placements: dict[str, str], tmp_path: Path
) -> None:
    assert trained_placements
    best = made / "both_sides-run" / "best.safetensors"
    log = preprocess(made, tmp_path / "data", f"--like={best}", "--directions=de-en,en-fr", "--weight=1", "--weight=2")
    assert re.search(r"web en-fr: 60 pairs, 50.0% of an epoch, each 1.5 times", log)
    data = DataFolder.open(tmp_path / "data")
    assert data.codec.config.placement == "both_sides"
    assert list(data.codec.config.directions) == BOTH_WAYS
    assert list(data.meta.splits["train"].directions) == ["de en", "en fr"]
    said = train(tmp_path / "data", tmp_path / "run", f"--init-from={best}", "--max-updates=2", "--valid-metric=nll")
    assert "start at random" not in said and "but the data is" not in said
    assert list(records(tmp_path / "run", "valid")[0]["directions"]) == ["de-en", "en-fr"]
    assert "data  de, en, fr in 2 directions, " in said
    assert "validating the model before it learns\nvalidation at update 0: " in said
    checkpoint = nmt.load_checkpoint(tmp_path / "run" / "best.safetensors")
    assert checkpoint.provenance["directions"] == ["de en", "en fr"]
    assert checkpoint.provenance["derived_from"] == "best.safetensors"
    tuned = build_model(checkpoint, best)
    assert tuned.target_embedding.weight.shape[0] == len(data.codec.target)
    bilingual = ["--source-lang=en", "--target-lang=de", f"--train={made}/news", f"--valid={made}/valid"]
    message = failed("preprocess", *bilingual, f"--like={best}", f"--dest={tmp_path}/other")
    assert "has several languages; give --languages and --directions" in message


def test_words_of_alignments_are_linked_behind_the_tokens_of_languages(made: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.write_text("0-0\n" * 120)
    options = ["--languages=en,de", f"--train={made}/news", f"--valid={made}/valid", f"--alignments={links}"]
    options += ["--vocab-size=340", "--language-tokens=both_sides", "--workers=1"]
    run("preprocess", *options, f"--dest={tmp_path}/data")
    data = DataFolder.open(tmp_path / "data")
    split, codec = data.split("train"), data.codec.directed(Direction("en", "de"))
    assert split.alignments is not None
    for index, line in enumerate((made / "news.en").read_text().splitlines()[:20]):
        pieces = [i for i, word in enumerate(codec.words("source", line, split.source[index].tolist())) if word == 0]
        linked = split.alignments[index].reshape(-1, 2)
        assert sorted(set(linked[:, 0].tolist())) == pieces
        assert linked.min() == 1
    message = failed("preprocess", *options, "--both-ways", f"--dest={tmp_path}/other")
    assert "--alignments needs one direction for each --train; name it with --directions" in message


def test_all_files_of_a_prefix_are_read(tmp_path: Path) -> None:
    def write(name: str, lines: int) -> None:
        (tmp_path / name).write_text("".join(f"a line {i} of the file {name}\n" for i in range(lines)))

    for name, lines in (("c", 50), ("c.en-de", 20), ("c.de-en", 30), ("valid", 5)):
        for lang in ("en", "de"):
            write(f"{name}.{lang}", lines)
    options = ["--languages=en,de", f"--train={tmp_path}/c", "--vocab-size=300", "--workers=1"]
    log = run("preprocess", *options, f"--valid={tmp_path}/valid", "--both-ways", f"--dest={tmp_path}/data").stderr
    assert "train: 200 pairs" in log and "en-de 100" in log and "de-en 100" in log
    log = run("preprocess", *options, f"--valid={tmp_path}/c", "--both-ways", f"--dest={tmp_path}/valid").stderr
    assert "valid: 50 pairs, en-de 20, de-en 30" in log
    (tmp_path / "c.en-de.de").unlink()
    message = failed("preprocess", *options, f"--valid={tmp_path}/valid", f"--dest={tmp_path}/other")
    assert f"--train: there is {tmp_path}/c.en-de.en, but no {tmp_path}/c.en-de.de" in message


def test_copies_leak_no_more_than_their_pairs(tmp_path: Path) -> None:
    lines = {"train.en": "Yes.", "train.de": "Ja.", "valid.en": "Yeah.", "valid.de": "Ja."}
    for name, line in lines.items():
        (tmp_path / name).write_text(f"{line}\n" * 40)
    files = [f"--{name}={tmp_path / name}" for name in ("train", "valid")]
    options = ["--languages=en,de", "--vocab-size=270", "--workers=1", "--copies=1", f"--dest={tmp_path}/data"]
    assert "valid: 0 of 40 pairs have a side" in run("preprocess", *files, *options).stderr


@pytest.mark.parametrize("options, message", [
    (["--languages=en,de", "--tag=<2de>", "--tag="], "--tag <2de> is the name of a special piece; choose another"),
    (["--languages=en"], "--languages must be different languages, such as en,de,fr, but is 'en'"),
    (["--languages=en,de,en"], "--languages must be different languages"),
    (["--languages=en,d/e"], "--languages must be different languages"),
    ([], "the languages are missing; give --source-lang and --target-lang, or --languages"),
    (["--source-lang=en"], "the languages are missing"),
    (["--languages=en,de", "--source-lang=en"], "--languages en,de does not work with --source-lang en"),
    (["--source-lang=en", "--target-lang=de", "--both-ways"], "--both-ways needs --languages; add it"),
    (["--languages=en,de", "--directions=en-es"], "--directions has 'en-es'; name two of --languages, such as de-en"),
    (["--languages=en,de", "--directions=en-de", "--both-ways"], "--both-ways does not work with --directions"),
    (["--languages=en,de", "--tokenizer=moses"], "--languages en,de does not work with --tokenizer moses"),
    (["--languages=en,de", "--separate-vocab"], "--languages en,de does not work with --separate-vocab"),
    (["--languages=en,de,es"], "no --train has files for es; take it out of --languages, or add such files"),
    (["--languages=en,de,fr", "--directions=en-de,fr-de"], "no --train has files for fr-de; take it out of"),
    (["--languages=en,fr"], "news has only {0}/news.en, and no two files for any of en-fr; such files are {0}/news.en"),
    (["--languages=en,de", "--test={0}/web"], "--test {0}/web has no two files for any of en-de"),
])  # fmt: skip
def test_mistakes_about_languages_are_explained(text: Path, tmp_path: Path, options: list[str], message: str) -> None:
    files = [f"--train={text}/news", f"--valid={text}/valid", f"--dest={tmp_path}/data", "--vocab-size=340"]
    files += [f"--train={text}/web"] * ("--tag=" in options)
    assert message.format(text) in failed("preprocess", *files, *(option.format(text) for option in options))


def test_a_language_without_a_direction_is_named(text: Path, tmp_path: Path) -> None:
    files = [f"--train={text}/news", f"--valid={text}/valid", f"--dest={tmp_path}/data", "--vocab-size=340"]
    log = run("preprocess", *files, "--languages=en, fr, de,es", "--directions=en-de", "--workers=1").stderr
    assert "no direction has es, fr; take it out of --languages, or name its --directions" in log
    assert DataFolder.open(tmp_path / "data").codec.config.languages == ("en", "fr", "de", "es")


def test_directions_follow_the_order_of_languages() -> None:
    config = partial(DataConfig, train=("t",), valid="v", dest="d")
    assert config(languages="fr,en,de").pairs == [("fr", "en"), ("fr", "de"), ("en", "de")]
    assert config(languages=" fr, en ", directions="fr-en, en-fr").pairs == [("fr", "en"), ("en", "fr")]
    assert config(languages="en,pt-BR", both_ways=True).pairs == [("en", "pt-BR"), ("pt-BR", "en")]
    assert config(languages="en,pt-BR", directions="pt-BR-en").pairs == [("pt-BR", "en")]
    with pytest.raises(NmtError, match="--directions has ''"):
        config(languages="en,de", directions="en-de,")


def test_copies_restore_lines_of_every_target_language(made: Path) -> None:
    log = preprocess(made, made / "copies", "--both-ways", "--copies=2")
    assert "de-de 120" in log and "en-en 180" in log and "fr-fr 60" in log
    times = {
        direction: float(visits)
        for direction, visits in re.findall(r"web (\S+): 60 pairs, .* each ([\d.]+) times", log)
    }
    assert times["fr-fr"] == pytest.approx(2 * times["en-fr"], rel=0.01)
    data = DataFolder.open(made / "copies")
    split, meta, codec = data.split("train"), data.meta.splits["train"], data.codec
    assert codec.config.trained == DataFolder.open(made / "target_on_source").codec.config.trained
    assert list(data.directions("valid")) == [Direction(*name.split()) for name in BOTH_WAYS]
    token = dict(zip(codec.config.languages, codec.source.ids(codec.config.language_pieces), strict=True))
    starts, changed = np.cumsum([0, *meta.sizes]), 0
    for direction, start, stop in zip(meta.directions, starts, starts[1:], strict=False):
        source_lang, target_lang = direction.split()
        for i in range(start, stop) if source_lang == target_lang else ():
            (first, *source), target = split.source[i].tolist(), split.target[i].tolist()
            assert first == token[target_lang]
            assert not set(source) - set(target) and len(source) <= len(target)
            changed += source != target
    assert changed > 300


def test_the_noise_of_a_copy_leaves_its_context_alone(made: Path) -> None:
    preprocess(made, made / "context", "--both-ways", "--copies=1", "--context=1")
    data = DataFolder.open(made / "context")
    split, meta = data.split("train"), data.meta.splits["train"]
    (mark,) = data.codec.source.ids([CONTEXT_PIECE])
    start = sum(meta.sizes[: meta.directions.index("de de")])
    contexts = 0
    for i in range(start + 1, start + meta.sizes[meta.directions.index("de de")]):
        source = split.source[i].tolist()
        if mark in source:
            assert source[source.index(mark) + 1 :] == split.target[i - 1].tolist()
            contexts += 1
    assert contexts > 30


def test_sampled_encodings_lower_capitals_by_the_rules_of_the_direction(tmp_path: Path) -> None:
    for lang, line in (("tr", "IŞIK ILIK IŞIK"), ("en", "LIGHT MILD LIGHT")):
        (tmp_path / f"text.{lang}").write_text(f"{line}\n" * 60, encoding="utf-8")
    options = ["--lower-capitals", "--subword-dropout=0.2", "--encodings=2", "--vocab-size=300"]
    files = [f"--train={tmp_path}/text", f"--valid={tmp_path}/text", f"--dest={tmp_path}/data"]
    run("preprocess", "--languages=tr,en", *files, *options)
    data = DataFolder.open(tmp_path / "data")
    encodings = [ids.tolist()[1:] for ids in data.split("train").in_epoch(1, 0).source]
    assert set(data.codec.source.decode(encodings)) == {"ışık ılık ışık"}
