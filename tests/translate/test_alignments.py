"""Word alignments: pieces belong to the right words of raw text, and links follow the model's cross-attention."""

import json
import math
import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from checkpoints import FP32 as RUNTIME
from commands import failed, numbers, records, run
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt import NmtError
from nmt.checkpoint import load_checkpoint, save_checkpoint
from nmt.config import SearchConfig
from nmt.model.architectures import model_config
from nmt.model.device import Runtime, set_up
from nmt.model.transformer import Transformer
from nmt.pages.attention import attention_of
from nmt.text.words import NO_WORD, words_of_pieces
from nmt.translate import alignment as alignment_module
from nmt.translate.translator import Translator

import aer  # isort: skip # `stand_ins` has added its folder to the path
import grammar  # isort: skip
import lexicon  # isort: skip
import links  # isort: skip


FP32 = ["--precision=fp32", "--device=cpu"]
SOURCE = "Ba de ki.\n\nLo “mu” na…  po\tra ☃.\nSi.\n"


@pytest.mark.parametrize("line, pieces, words", [
    ("", "", ""),
    ("Ba de.", "▁Ba ▁d e ▁.", "0 1 1 1"),  # the tokeniser splits off the full stop
    ("  Ba \t de", "▁Ba ▁de", "0 1"),
    ("a Öl", "▁a ▁ <0xC3> <0x96> l", "0 1 1 1 1"),  # a space alone belongs to the word behind it
    ("“Ba” de…", '▁" ▁Ba ▁" ▁de ▁...', "0 0 0 1 1"),  # normalised punctuation
    ("Ba – de", "▁Ba ▁- ▁de", "0 1 2"),
    ("Ba de", "▁Ba ▁and ▁de", f"0 {NO_WORD} 1"),  # text that the line does not have
    ("Ba and de", "▁Ba ▁de", "0 2"),
    ("10\u00a0000\u3000Ba de", "▁10 ▁000 ▁Ba ▁de", "0 0 0 1"),  # only ASCII white space ends a word
    ("a b", "▁a▁b", "0"),  # a piece of two words belongs to one of them
    ("\ud800 x", "▁ <0xEF> <0xBF> <0xBD> ▁x", "0 0 0 0 1"),  # JSON may hold lone surrogates
])  # fmt: skip
def test_pieces_belong_to_words_of_the_raw_line(line: str, pieces: str, words: str) -> None:
    assert words_of_pieces(pieces.split(), line) == list(map(int, words.split()))


@settings(max_examples=30)
@given(st.lists(st.text("abcäß漢☃'“”-…", min_size=1, max_size=9), max_size=300), st.randoms(use_true_random=False))
def test_pieces_belong_to_words_where_normalisation_changes_characters(words: list[str], rng: Random) -> None:
    """The reference cuts every word by itself. Each piece ends in a letter that normalisation leaves alone."""
    pieces, expected = [], []
    for index, word in enumerate(words):
        word += "z"
        cut = rng.randint(0, len(word) - 1)
        for text in (word[:cut] and "▁" + word[:cut] + "z", word[cut:]):
            pieces.append(text.replace("“", '"').replace("”", '"').replace("…", "..."))
            expected.append(index)
        words[index] = word[:cut] + "z" * bool(cut) + word[cut:]
    kept = [i for i, piece in enumerate(pieces) if piece]
    indexes = words_of_pieces([pieces[i] for i in kept], " ".join(words))
    assert indexes == [expected[i] for i in kept]


def test_a_long_line_with_many_normalised_quotes_is_mapped_word_by_word() -> None:
    """It is longer than several windows of text that are compared at once."""
    pieces = ['▁"', "ba", '"'] * 250
    assert words_of_pieces(pieces, " ".join(["“ba”"] * 250)) == [i for i in range(250) for _ in range(3)]


def naive_links(checkpoint: Path, source: str, target: str, pieces: list[str]) -> list[tuple[int, int]]:
    """Returns links of text without punctuation, from the attention that `nmt attention` shows."""
    cross = attention_of(str(checkpoint), source, target)["cross"]
    assert cross.queries == [*pieces, "</s>"]
    columns, rows = (np.cumsum([p.startswith("▁") for p in side]) - 1 for side in (cross.keys[:-1], pieces))
    weights = cross.weights_LHQS[-1].mean(0).numpy()[: len(rows), : len(columns)]
    word_links = []
    for word in range(rows[-1] + 1):
        sums = [weights[np.ix_(rows == word, columns == source_word)].sum() for source_word in range(columns[-1] + 1)]
        word_links.append((int(np.argmax(sums)), word))
    return sorted(word_links)


def test_each_target_word_is_linked_to_the_source_word_with_most_attention(trained: Path) -> None:
    model = trained / "run" / "average.safetensors"
    pairs = ["ba deki lo\tik ab ol", "mu na po rasi\tisar op an um um um", "si tu ve zo ba de\tab ed"]
    said = run("rescore", model, *FP32, "--alignments", "--output-format=jsonl", stdin="\n".join(pairs).encode()).stdout
    lines = [json.loads(line) for line in said.splitlines()]
    for value in lines:
        expected = naive_links(model, value["source"], value["target"], value["rescored"]["pieces"])
        assert numbers(value["rescored"]["alignment"]) == expected
    assert len({value["rescored"]["alignment"] for value in lines}) == 3


def test_the_last_decoder_layer_aligns() -> None:
    """A layer whose queries are 0 attends to all pieces alike, so that every link goes to the first word."""
    config = model_config("transformer_tiny", decoder_layers=3)
    sentence = alignment_module.SentencePair(np.arange(300, 312), range(12), range(300, 312), range(12))
    for silent in range(3):
        torch.manual_seed(1)
        model = Transformer(config, 312, 312, shared=True).eval()
        torch.nn.init.zeros_(model.decoder[silent].cross_attention.query.weight)  # type: ignore[union-attr, arg-type]
        ((*word_links,),) = alignment_module.align([model], set_up(RUNTIME), [sentence])
        assert ({source for source, _ in word_links} == {0}) == (silent == 2)


def test_text_has_the_links_behind_bars(trained: Path) -> None:
    model = trained / "run" / "best.safetensors"
    flags = [*FP32, "--max-length-offset=9"]
    plain = run("generate", model, *flags, stdin=SOURCE.encode()).stdout.decode().splitlines()
    objects = run("generate", model, *flags, "--alignments", "--output-format=jsonl", stdin=SOURCE.encode()).stdout
    expected = [json.loads(line)["hypotheses"][0]["alignment"] for line in objects.splitlines()]
    lines = run("generate", model, *flags, "--alignments", stdin=SOURCE.encode()).stdout.decode().split("\n")[:-1]
    assert lines == [f"{text} ||| {links}" for text, links in zip(plain, expected, strict=True)]
    assert lines[1] == " ||| "
    odd = "\u200b\n\u00a0\n\n{n, plural, one {ba} other {de}}\n".encode()
    for options in ([], ["--split-sentences"]):
        text = run("generate", model, *flags, *options, "--alignments", stdin=odd).stdout.decode().split("\n")[:-1]
        assert text[:3] == [" ||| "] * 3 and text[3].endswith("}} ||| ")
    assert b"alignment" not in run("generate", model, *flags, "--output-format=jsonl", stdin=b"Ba.").stdout
    pair = f"{SOURCE.splitlines()[0]}\t{plain[0]}\n"
    log_prob, alignment = run("rescore", model, *FP32, "--alignments", stdin=pair.encode()).stdout.decode().split("|||")
    assert float(log_prob) < 0
    said = failed("generate", model, "--alignments", "--output-format=tsv")
    assert "--output-format tsv has no column for --alignments" in said
    assert numbers(alignment) == numbers(expected[0])


def test_a_line_in_parts_is_aligned_part_by_part(translator: Translator) -> None:
    syllables = ["ba", "de", "ki", "lo", "mu", "na", "po", "ra", "si", "tu", "ve", "zo"]
    sizes = [len(ids) for ids in translator.codec.encode_source(syllables)]
    words = (6 * [word for word, size in zip(syllables, sizes, strict=True) if size == sizes[0]])[:6]
    search = SearchConfig(max_source_length=2 * sizes[0], no_repeat_ngram=1, min_length=3, alignments=True)
    halves = translator.hypotheses([" ".join(words[i : i + 2]) for i in (0, 2, 4)], search)
    ((whole,),) = translator.hypotheses([" ".join(words)], search)
    expected, offset = [], 0
    for i, (half,) in enumerate(halves):
        assert half.alignment
        expected += [(2 * i + source, offset + target) for source, target in half.alignment]
        offset += len(half.text.split())
    assert whole.text == " ".join(half.text for (half,) in halves)
    assert whole.alignment == tuple(sorted(expected))


def test_batches_are_halved_if_memory_runs_out(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["Ba de ki.", "Lo.", "Mu na po ra."]
    search = SearchConfig(max_length_offset=9, alignments=True)
    expected = [[h.alignment for h in line] for line in translator.hypotheses(lines, search)]
    whole = alignment_module._weights

    def small(models: list[Transformer], runtime: Runtime, pairs: list) -> list:
        if len(pairs) > most:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return whole(models, runtime, pairs)

    monkeypatch.setattr(alignment_module, "_weights", small)
    most = 1
    assert [[h.alignment for h in line] for line in translator.hypotheses(lines, search)] == expected
    most = 0
    with pytest.raises(NmtError, match="leave out --alignments"):
        translator.hypotheses(lines, search)


# Sure links S, possible links P, found links A, and the rate by hand.
@pytest.mark.parametrize("sure, possible, found, rate", [
    (["0-0 1-1"], ["0-0 1-1"], ["0-0 1-1"], 0.0),
    (["0-0 1-1"], ["0-0 1-1"], ["0-1"], 1.0),
    (["0-0 1-1"], ["0-0 1-1 1-2"], ["0-0 1-2"], 1 - (1 + 2) / (2 + 2)),
    (["0-0", "0-0 1-1 2-2"], ["0-0", "0-0 1-1 2-2"], ["", "0-0 1-1 2-1"], 1 - (2 + 2) / (3 + 4)),
])  # fmt: skip
def test_the_alignment_error_rate_is_that_of_och_and_ney(
    sure: list[str], possible: list[str], found: list[str], rate: float
) -> None:
    sets = ([set(line.split()) for line in lines] for lines in (sure, possible, found))
    assert aer.alignment_error_rate(zip(*sets, strict=True)) == pytest.approx(rate)


def test_the_grammar_links_nouns_to_their_translations() -> None:
    """Every English noun has one sure link, to a form of its German noun; every word at most sees its own sentence."""
    forms: dict[str, set[str]] = {}
    for noun in lexicon.ALL_NOUNS:
        forms.setdefault(noun.english, set()).update((noun.german, noun.oblique))
        if noun.plural:
            forms.setdefault(noun.english_plural, set()).update((noun.plural, noun.plural + "n"))
    rng, nouns = Random(8), 0
    for _ in range(200):
        source, target = grammar.marked_sentence(rng)
        sure, possible = (set(numbers(links.links(source, target, sure=kind))) for kind in (True, False))
        assert sure <= possible
        german = [word.strip(",.?") for word in links.plain(target).split()]
        for i, word in enumerate(links.plain(source).split()):
            if (name := word.strip(",.?").lower()) in forms:
                (j,) = (j for k, j in sure if k == i)
                assert german[j] in forms[name], (source, target)
                nouns += 1
    assert nouns > 250


# Sentences of the corpus with seed 1, linked by hand: English words with the German words that are sure, or possible.
LINKED = """
Paul sold an interesting letter three days ago and she was too old.
Paul=Paul sold=verkauft an=einen interesting=interessanten letter=Brief three=drei days=Tagen ago=vor and=und she=sie \
was=war too=zu old.=alt.
sold~hat
They do not see the woman.
They=Sie not=nicht. see=sehen the=die woman.=Frau
do~sehen
They should not wash a horse.
They=Sie should=sollten not=kein wash=waschen. a=kein horse.=Pferd
should~waschen. wash~sollten
Peter will not plan to sell this old computer.
Peter=Peter will=wird not=nicht plan=planen, to=zu sell=verkaufen. this=diesen old=alten computer.=Computer
will~planen, plan~wird to~verkaufen. sell~zu
"""


def test_the_grammar_links_sentences_as_done_by_hand() -> None:
    pairs = {links.plain(source): (source, target) for source, target in grammar.corpus(100, 1)}
    lines = LINKED.strip().replace("\\\n", "").split("\n")
    for text, sure, possible in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        source, target = pairs[text]
        english, german = text.split(), links.plain(target).split()
        links_by_kind = []
        for kind, separator in ((True, "="), (False, "~")):
            word_links = numbers(links.links(source, target, sure=kind))
            links_by_kind.append({f"{english[i]}{separator}{german[j]}" for i, j in word_links})
        assert links_by_kind[0] == set(sure.split())
        assert links_by_kind[1] == {link.replace("=", "~") for link in sure.split()} | set(possible.split())


# `nmt rescore`: the log P of given translations equals what search and training report


def rescored(*arguments: str | Path, stdin: str = "") -> list[list[float]]:
    """Returns log P of every piece of every line with one translation."""
    lines = run("rescore", *arguments, *FP32, "--output-format=jsonl", stdin=stdin.encode()).stdout.splitlines()
    return [json.loads(line)["rescored"]["log_probs"] for line in lines]


@pytest.mark.parametrize("models, options", [
    (["best.safetensors"], ["--n-best=4"]),
    (["best.safetensors", "snapshot-00000020.safetensors"], ["--sample", "--samples=3", "--temperature=2",
                                                           "--top-k=50"]),
    (["best.safetensors"], ["--beam=4", "--beam-groups=2", "--n-best=3"]),
    (["best.safetensors"], ["--prefixes={folder}/prefixes"]),
    (["best.safetensors", "snapshot-00000020.safetensors"], ["--constraints={folder}/phrases", "--beam=6"]),
])  # fmt: skip
def test_generated_translations_have_the_log_p_and_the_alignments_that_generate_reports(
    trained: Path, tmp_path: Path, models: list[str], options: list[str]
) -> None:
    (tmp_path / "prefixes").write_text("ab\n\ned ik\n\n")
    (tmp_path / "phrases").write_text("ab\t!\n\nop\n\n")
    checkpoints = [trained / "run" / name for name in models]
    flags = [*FP32, "--alignments", "--output-format=jsonl"]
    search = ["--max-length-offset=9", *(option.format(folder=tmp_path) for option in options)]
    generated = run("generate", *checkpoints, *search, *flags, stdin=SOURCE.encode()).stdout
    again = run("rescore", *checkpoints, *flags, "--input-format=jsonl", stdin=generated).stdout
    lines = [[json.loads(line) for line in said.splitlines()] for said in (generated, again)]
    assert len(lines[0]) == 4
    words = 0
    for value, rescored in zip(*lines, strict=True):
        for hypothesis, scored in zip(value["hypotheses"], rescored["hypotheses"], strict=True):
            if value["source"]:  # generate gives a blank line no log P
                assert scored["rescored"]["log_probs"] == pytest.approx(hypothesis["log_probs"], abs=1e-4)
            assert scored["rescored"]["alignment"] == hypothesis["alignment"]
            assert_links(hypothesis["alignment"], value["source"], hypothesis["text"] if value["source"] else "")
            words += len(hypothesis["text"].split())
    assert words > 1


def assert_links(alignment: str, source: str, target: str) -> None:
    """Checks that every word of the target has one link, to a word of the source."""
    links = [tuple(map(int, link.split("-"))) for link in alignment.split()]
    assert all(word < len(source.split()) for word, _ in links)
    linked, words = sorted(word for _, word in links), list(range(len(target.split())))
    # A piece of invalid UTF-8 may have no word of its own.
    assert linked == words if "\ufffd" not in target else set(linked) <= set(words)


def test_the_sum_over_the_validation_set_is_the_validation_nll_of_training(trained: Path) -> None:
    pairs = ["--source", trained / "valid.en", "--target", trained / "valid.de"]
    log_probs = [p for line in rescored(trained / "run" / "snapshot-00000040.safetensors", *pairs) for p in line]
    nll = records(trained / "run", "valid")[-1]["nll"]
    assert -math.fsum(log_probs) / len(log_probs) == pytest.approx(nll, rel=1e-6)


def test_text_output_sums_normalises_and_reports_the_perplexity(trained: Path) -> None:
    model = trained / "run" / "best.safetensors"
    pairs = "Ba de ki.\tik ed ab !\n\t\nLo.\t\n"
    expected = rescored(model, stdin=pairs)
    assert [len(line) for line in expected][1:] == [1, 1]  # EOS alone
    plain = run("rescore", model, *FP32, stdin=pairs.encode())
    assert [float(x) for x in plain.stdout.split()] == pytest.approx(list(map(sum, expected)), abs=1e-5)
    normal = run("rescore", model, *FP32, "--normalize", stdin=pairs.encode()).stdout.split()
    assert [float(x) for x in normal] == pytest.approx([sum(line) / len(line) for line in expected], abs=1e-5)
    total, pieces = sum(map(sum, expected)), sum(map(len, expected))
    assert f"3 lines, {pieces} pieces with EOS, log P {total:,.4f}" in plain.stderr
    assert f"perplexity {math.exp(-total / pieces):,.4f} per piece" in plain.stderr
    assert "1 line, 1 piece with EOS" in run("rescore", model, *FP32, stdin=b"Lo.\t\n").stderr


def test_neither_order_nor_batch_size_changes_a_line(trained: Path) -> None:
    lines = ["Ba.\tab", "\tab", "Ba de.\t", "Lo mu na.\tan um ol !", "x\t☃ 漢字", "Si si si si.\tis " + "is " * 30]
    command = ["rescore", trained / "run" / "best.safetensors", *FP32]
    expected = list(map(float, run(*command, stdin="\n".join(lines).encode()).stdout.split()))
    for tokens, order in ((1, [5, 4, 3, 2, 1, 0]), (40, [2, 0, 5, 1, 4, 3]), (4000, [1, 5, 0, 3, 2, 4])):
        shuffled = "\n".join(lines[i] for i in order).encode()
        log_probs = run(*command, f"--batch-tokens={tokens}", stdin=shuffled).stdout.split()
        assert list(map(float, log_probs)) == pytest.approx([expected[i] for i in order], abs=1e-4)


def test_very_long_pairs_are_scored_whole(trained: Path) -> None:
    pair = "ba " * 1500 + "\t" + "ab " * 1500
    log_probs = run("rescore", trained / "run" / "best.safetensors", stdin=f"{pair}\nBa.\tab\n".encode()).stdout.split()
    assert len(log_probs) == 2
    assert all(map(math.isfinite, map(float, log_probs)))


def test_fields_of_json_pass_through_and_given_pieces_are_scored(trained: Path) -> None:
    hypotheses = [{"text": "ab", "note": [1]}, {"text": "ba", "pieces": ["a", "<unk>"]}]
    given = {"id": 7, "source": "Ba.", "hypotheses": hypotheses}
    command = ["rescore", trained / "run" / "best.safetensors", *FP32, "--input-format=jsonl", "--output-format=jsonl"]
    output = json.loads(run(*command, stdin=json.dumps(given).encode()).stdout)
    first, second = (hypothesis.pop("rescored") for hypothesis in output["hypotheses"])
    assert output == given
    assert first["log_prob"] < 0
    assert second["pieces"] == ["a", "<unk>"]


def test_a_model_without_numbers_is_refused(trained: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(trained / "run" / "best.safetensors")
    for weight in checkpoint.weights.values():
        weight.fill_(math.nan)
    save_checkpoint(checkpoint, tmp_path / "nan.safetensors")
    assert "gives NaN probabilities" in failed("rescore", tmp_path / "nan.safetensors", stdin=b"Ba.\tBa.\n")


PIECES = '{{"source": "", "hypotheses": [{{"text": "ab", "pieces": ["a", "{}"]}}]}}'


@pytest.mark.parametrize("arguments, stdin, message", [
    (["--source=x"], "", "--source x needs --target; add it, or leave out --source"),
    (["--source=-", "--target=-"], "", "are both standard input"),
    (["--source=", "--target=-"], "", "--source is empty; give a value or leave it out"),
    (["--source=-", "--target={folder}/test.de"], "Ba.\n", "has 1 line but .*test.de has 10"),
    ([], "Ba.\n", "standard input, line 1 has 0 tabs"),
    (["--input-format=jsonl"], "{\n", "standard input, line 1 is not JSON"),
    (["--input-format=jsonl"], '{"source": 1}\n', 'line 1 has no text as its "source"'),
    (["--input-format=jsonl"], '{"source": ""}\n', 'line 1 has neither a text as its "target" nor'),
    (["--input-format=jsonl"], '{"source": "", "hypotheses": [{"text": "", "pieces": 3}]}', '"pieces" must be'),
    (["--input-format=jsonl"], PIECES.format("</s>"), "line 1: '</s>' is no piece of text in this model; remove"),
    (["--input-format=jsonl"], PIECES.format("not a piece"), "line 1: 'not a piece' is no piece of text in this model"),
    (["--input={folder}/nowhere"], "", "nowhere does not exist"),
])  # fmt: skip
def test_bad_input_is_one_sentence(trained: Path, arguments: list[str], stdin: str, message: str) -> None:
    flags = [argument.format(folder=trained) for argument in arguments]
    said = failed("rescore", trained / "run" / "best.safetensors", *flags, stdin=stdin.encode())
    assert re.search(message, said), said
