"""`nmt rescore`: the log P of given translations equals what search and training report."""

import json
import math
import re
from pathlib import Path

import pytest
from commands import failed, records, run

from nmt.checkpoint import load_checkpoint, save_checkpoint

FP32 = ["--precision=fp32", "--device=cpu"]
SOURCE = "Ba de ki.\n\nLo “mu” na…  po\tra ☃.\nSi.\n"


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
        for found, scored in zip(value["hypotheses"], rescored["hypotheses"], strict=True):
            if value["source"]:  # generate gives a blank line no log P
                assert scored["rescored"]["log_probs"] == pytest.approx(found["log_probs"], abs=1e-4)
            assert scored["rescored"]["alignment"] == found["alignment"]
            assert_links(found["alignment"], value["source"], found["text"] if value["source"] else "")
            words += len(found["text"].split())
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


def test_neither_order_nor_batch_size_changes_a_line(trained: Path) -> None:
    lines = ["Ba.\tab", "\tab", "Ba de.\t", "Lo mu na.\tan um ol !", "x\t☃ 漢字", "Si si si si.\tis " + "is " * 30]
    command = ["rescore", trained / "run" / "best.safetensors", *FP32]
    expected = list(map(float, run(*command, stdin="\n".join(lines).encode()).stdout.split()))
    for tokens, order in ((1, [5, 4, 3, 2, 1, 0]), (40, [2, 0, 5, 1, 4, 3]), (4000, [1, 5, 0, 3, 2, 4])):
        shuffled = "\n".join(lines[i] for i in order).encode()
        found = run(*command, f"--batch-tokens={tokens}", stdin=shuffled).stdout.split()
        assert list(map(float, found)) == pytest.approx([expected[i] for i in order], abs=1e-4)


def test_very_long_pairs_are_scored_whole(trained: Path) -> None:
    pair = "ba " * 1500 + "\t" + "ab " * 1500
    found = run("rescore", trained / "run" / "best.safetensors", stdin=f"{pair}\nBa.\tab\n".encode()).stdout.split()
    assert len(found) == 2
    assert all(map(math.isfinite, map(float, found)))


def test_fields_of_json_pass_through_and_special_pieces_are_not_scored_twice(trained: Path) -> None:
    hypotheses = [{"text": "ab", "note": [1]}, {"text": "ba", "pieces": ["a", "</s>"]}, {"text": "ba"}]
    given = {"id": 7, "source": "Ba.", "hypotheses": hypotheses}
    command = ["rescore", trained / "run" / "best.safetensors", *FP32, "--input-format=jsonl", "--output-format=jsonl"]
    found = json.loads(run(*command, stdin=json.dumps(given).encode()).stdout)
    first, second, third = (hypothesis.pop("rescored")["log_prob"] for hypothesis in found["hypotheses"])
    assert found == given
    assert first < 0
    assert second == pytest.approx(third)


def test_a_model_without_numbers_is_refused(trained: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(trained / "run" / "best.safetensors")
    for weight in checkpoint.weights.values():
        weight.fill_(math.nan)
    save_checkpoint(checkpoint, tmp_path / "nan.safetensors")
    assert "gives NaN probabilities" in failed("rescore", tmp_path / "nan.safetensors", stdin=b"Ba.\tBa.\n")


@pytest.mark.parametrize("arguments, stdin, message", [
    (["--source=x"], "", "--target is missing; give both --source and --target"),
    (["--source=-", "--target=-"], "", "are both standard input"),
    (["--source=", "--target=-"], "", "--source is empty; give the name of a file"),
    (["--source=-", "--target={folder}/test.de"], "Ba.\n", "has 1 lines but .*test.de has 10"),
    ([], "Ba.\n", "standard input, line 1 has 0 tabs"),
    (["--input-format=jsonl"], "{\n", "standard input, line 1 is not JSON"),
    (["--input-format=jsonl"], '{"source": 1}\n', 'line 1 has no text as its "source"'),
    (["--input-format=jsonl"], '{"source": ""}\n', 'line 1 has neither a text as its "target" nor'),
    (["--input-format=jsonl"], '{"source": "", "hypotheses": [{"text": "", "pieces": 3}]}', '"pieces" must be'),
    (["--input={folder}/nowhere"], "", "nowhere does not exist"),
])  # fmt: skip
def test_bad_input_is_one_sentence(trained: Path, arguments: list[str], stdin: str, message: str) -> None:
    flags = [argument.format(folder=trained) for argument in arguments]
    said = failed("rescore", trained / "run" / "best.safetensors", *flags, stdin=stdin.encode())
    assert re.search(message, said), said
