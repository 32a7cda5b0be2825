"""`nmt report` and `nmt attention` write self-contained pages that show what the model did."""

import base64
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from browser import start_record, train_record, valid_record, write_run
from checkpoints import ELOQUENT, FP32, multilingual_codec, saved, small_checkpoint
from commands import failed, records, run
from servers import running

import nmt
from nmt.locks import locked
from nmt.pages.attention import attention_of
from nmt.pages.page import page as made_page
from nmt.text.subword import BOS, EOS
from nmt.text.text_config import Placement
from nmt.translate.pytorch_engine import PyTorchEngine

PAGE_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def data_of(page: Path) -> dict:
    """Returns the data in a page, which must load nothing and have no placeholder left."""
    html = page.read_text(encoding="utf-8")
    assert not re.search(r"(src|href)\s*=|@import|url\(|\{\{", html)
    (text,) = PAGE_DATA.findall(html)
    return json.loads(text)  # type: ignore[no-any-return]


def reported(folder: Path, *arguments: str | Path) -> dict:
    """Writes a report to page.html in a folder and returns its data."""
    run("report", *arguments, "--output", folder / "page.html")
    return data_of(folder / "page.html")


def assert_shown(shown: dict, folder: Path) -> None:
    """Checks that the page shows the values of all records of a run."""
    names = {"train": ["nll", "loss", "lr", "target_tokens_per_second"], "valid": ["nll", "ppl", "bleu"]}
    for kind in names:
        logged_records = records(folder, kind)
        assert shown[kind]["update"] == [record["update"] for record in logged_records]
        for name in names[kind]:
            assert shown[kind][name] == pytest.approx([record[name] for record in logged_records], rel=1e-6)
        assert shown[kind]["train_seconds"] == pytest.approx([r["train_seconds"] for r in logged_records], abs=1e-3)


def test_a_report_has_the_records_options_and_costs_of_all_runs(trained: Path, tmp_path: Path) -> None:
    start = start_record()
    start["model"]["learned_positions"] = 600
    other = write_run(tmp_path / "other </script> run", [start, train_record(10, 3.0), valid_record(10, 3.5, 1.25)])
    data = reported(tmp_path, trained / "run", other, "--sustained-tflops=2")
    first, second = data["runs"]
    assert_shown(first, trained / "run")
    assert_shown(second, other)
    assert second["name"] == f"{tmp_path.name}/other </script> run"
    assert (first["config"]["--learned-positions"], second["config"]["--learned-positions"]) == ("", "600")
    assert first["config"]["languages"] == "en -> de"
    head, cost, *_ = data["cost"]["rows"]
    last = records(trained / "run", "train")[-1]
    shown = dict(zip(head, cost, strict=True))
    assert float(shown["FLOPs counted"]) == pytest.approx(last["flops"], rel=0.1)
    assert float(shown["FLOPs sustained"]) == pytest.approx(last["train_seconds"] * 2e12, rel=0.1)
    assert shown["best BLEU"] == f"{max(first['valid']['bleu']):.2f}"
    repeated = write_run(tmp_path / "repeated", [start_record(), train_record(10, 9.0), train_record(10, 3.0)])
    data = reported(tmp_path, repeated)
    assert "give --sustained-tflops" in data["cost"]["note"]
    assert data["runs"][0]["train"]["loss"] == [3.25]
    assert "<title>a &lt;/title&gt;</title>" in made_page("report", "a </title>", {})


def test_damaged_and_unusable_logs_are_reported(trained: Path, tmp_path: Path) -> None:
    assert "nowhere/metrics.jsonl cannot be read" in failed("report", tmp_path / "nowhere" / "metrics.jsonl")
    shutil.copytree(trained / "run", tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    whole = metrics.read_text()
    metrics.write_text(whole + '{"kind": "tra')  # training is still writing this record
    assert_shown(reported(tmp_path, metrics)["runs"][0], trained / "run")
    odd_pairs = (re.sub(r'"pairs": \d+', f'"pairs": {odd}', whole) for odd in ("null", '"12"', "[]"))
    for content in (*odd_pairs, '{"kind": "start", "update": 0, "model": {}}\n'):
        metrics.write_text(content)
        said = failed("report", trained / "run", metrics)  # the log that is intact is not named
        assert f"error: {metrics}: a record lacks a value or has a value of the wrong type" in said
    metrics.write_text("")
    assert "has no record of the start of a training" in failed("report", tmp_path / "run")
    assert "cannot be written" in failed("report", trained / "run", "--output", tmp_path / "no" / "page.html")


@torch.no_grad()
def test_the_page_shows_the_attention_weights_that_the_model_used(trained: Path) -> None:
    """The weights follow in float64 from the inputs of every attention layer, and its output follows from them."""
    checkpoint, source, target = trained / "run" / "average.safetensors", "Ba de ki.", "ik ed ab !"
    attentions = attention_of(str(checkpoint), source, target)
    engine = PyTorchEngine.load(checkpoint, runtime=FP32)
    model, codec = engine.models[0], engine.codec
    ((source_ids,), (target_ids,)) = codec.encode_source([source]), codec.encode_target([target])
    taken: dict[str, tuple] = {}
    for name, module in model.named_modules():
        if name.endswith("_attention"):
            module.register_forward_hook(lambda _, x, out, name=name: taken.update({name: (*x[:2], out)}))
    model(torch.tensor([[*source_ids, EOS]]), torch.tensor([[BOS, *target_ids]]))
    places = {"encoder": "encoder.{}.self_attention", "decoder": "decoder.{}.self_attention"}
    for kind, place in {**places, "cross": "decoder.{}.cross_attention"}.items():
        attention = attentions[kind]  # type: ignore[index]
        torch.testing.assert_close(attention.weights_LHQS.sum(-1), torch.ones(attention.weights_LHQS.shape[:-1]))
        for layer, weights_HQS in enumerate(attention.weights_LHQS):
            module = model.get_submodule(place.format(layer))
            x_FD, encoded_ND, out_FD = taken[place.format(layer)]
            q, k, v = (part.double().transpose(0, 1) for part in module.projections(x_FD, encoded_ND))
            scores = q @ k.mT / q.shape[-1] ** 0.5
            if kind == "decoder":
                scores = scores.masked_fill(torch.ones(scores.shape).triu(1).bool(), -torch.inf)
            torch.testing.assert_close(weights_HQS.double(), scores.softmax(-1), rtol=0, atol=1e-5)
            attended = (weights_HQS.double() @ v).transpose(0, 1).flatten(1) @ module.output.weight.double().T
            torch.testing.assert_close(out_FD.double(), attended, rtol=0, atol=1e-5)
    assert attentions["cross"].queries == [*codec.target.pieces(target_ids), "</s>"]
    assert attentions["decoder"].queries == ["<s>", *codec.target.pieces(target_ids)]
    assert attentions["cross"].keys == attentions["encoder"].keys == [*codec.source.pieces(source_ids), "</s>"]


def test_the_page_shows_attention_windows(tmp_path: Path) -> None:
    checkpoint = saved(small_checkpoint(1, replace(ELOQUENT, attention_window=3)), tmp_path / "model.safetensors")
    attentions = attention_of(str(checkpoint), "Ba de ki lo mu na.", "am ol ik ed ab !")
    for kind in ("encoder", "decoder"):
        weights = attentions[kind].weights_LHQS  # type: ignore[index]
        assert weights.shape[-1] > 9  # enough positions for the model to compute windows in blocks
        assert (weights > 0).sum(-1).max() == 3
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_few_learned_positions_suffice_for_a_short_sentence(tmp_path: Path) -> None:
    few = small_checkpoint(1, replace(ELOQUENT, learned_positions=40))
    checkpoint = saved(few, tmp_path / "model.safetensors")
    assert attention_of(str(checkpoint), "Ba de ki.", None)["cross"].weights_LHQS.shape[-1] > 3


def test_attention_is_written_as_a_page(trained: Path, tmp_path: Path) -> None:
    average, page = trained / "run" / "average.safetensors", tmp_path / "page.html"
    run("attention", average, "--source", "Ba de </script> & ki.", "--output", page)
    data = data_of(page)
    assert set(data["kinds"]) == {"encoder", "decoder", "cross"}
    assert data["shown"] == {"kind": "cross", "layer": 1, "head": 1}
    cross = data["kinds"]["cross"]
    weights = np.frombuffer(base64.b64decode(cross["weights"]), "<f4")
    shape = [cross[name] for name in ("layers", "heads")] + [len(cross[n]) for n in ("queries", "keys")]
    np.testing.assert_allclose(weights.reshape(shape).sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize("placement, source, target", [
    ("both_sides", ["<2en>", "▁a", "</s>"], ["<s>", "<2de>"]),
    ("behind_source", ["▁a", "</s>", "<2en>"], ["<s>", "<2de>"]),
    ("target_on_source", ["<2de>", "▁a", "</s>"], ["<s>"]),
])  # fmt: skip
def test_attention_in_a_direction_has_the_tokens_of_languages(
    tmp_path: Path, placement: Placement, source: list[str], target: list[str]
) -> None:
    several = saved(small_checkpoint(1, codec=multilingual_codec(placement)), tmp_path / "model.safetensors")
    command = ["attention", several, "--source=a", "--output", tmp_path / "page.html", "--target-lang=de"]
    run(*command, "--source-lang=en")
    kinds = data_of(tmp_path / "page.html")["kinds"]
    assert kinds["cross"]["keys"] == source
    assert kinds["decoder"]["keys"][: len(target)] == target
    assert "--target-lang is missing; name one of de, en, fr" in failed(*command[:-1], "--source-lang=en")


def test_attention_that_cannot_be_drawn_is_refused(trained: Path, tmp_path: Path) -> None:
    average, page = trained / "run" / "average.safetensors", tmp_path / "x.html"
    assert "--source has 0 pieces" in failed("attention", average, "--source", " ", "--output", page)
    long = "ba " * 300
    assert "but 1 to 200 can be drawn" in failed("attention", average, "--source", long, "--output", page)
    options = ["attention", average, "--source", "ba", "--output", tmp_path / "x.png"]
    assert "x.png is the name of another format; give a name" in failed(*options)
    assert not list(tmp_path.iterdir())


def _luminance(colour: str) -> float:
    parts = [part / 255 for part in bytes.fromhex(colour)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [0, 1])
def test_text_and_lines_stand_out_from_their_background(theme: int) -> None:
    """WCAG demands a ratio of 4.5 for text. The colours of the lines are also the background of texts."""
    style = (Path(nmt.__file__).parent / "pages" / "style.css").read_text()
    colours = dict(re.findall(r"--([\w-]+): #([0-9a-f]{6})", style.split("@media")[theme]))
    backgrounds = [colours.pop("page"), colours.pop("panel")]
    del colours["line"]
    for name, colour in colours.items():
        for background in backgrounds:
            low, high = sorted(map(_luminance, (colour, background)))
            assert (high + 0.05) / (low + 0.05) >= 4.5, name


def test_runs_are_named_by_the_parts_of_their_paths_that_differ(tmp_path: Path) -> None:
    first, second = (write_run(tmp_path / name / "model", [start_record()]) for name in ("a", "b"))
    runs = [first, second / "metrics.jsonl"]
    for given, names in (
        (runs, ["a/model", "b/model"]), (runs[:1], ["model"]), ([*runs, "--name=x", "--name=y"], ["x", "y"])
    ):  # fmt: skip
        assert [entry["name"] for entry in reported(tmp_path, *given)["runs"]] == names
    assert "--name must be given once for each of the 2 runs, but was" in failed("report", *runs, "--name=x")
    for twice in ((*runs, "--name=x", "--name=x"), (*runs, "--name=x", "--name="), (runs[0], runs[0])):
        assert "is empty or of several runs; give each run its own --name" in failed("report", *twice)
    assert "--watch writes no file, but --output was given" in failed("report", runs[0], "--watch", "--output=x")


def test_the_report_says_what_a_run_has_reached(trained: Path, tmp_path: Path) -> None:
    (entry,), valid = reported(tmp_path, trained / "run")["runs"], records(trained / "run", "valid")
    assert (entry["status"], entry["message"]) == ("finished", "")
    best = max(valid, key=lambda record: (record["bleu"], -record["nll"]))
    facts = {name: (value, note) for name, value, note in entry["facts"]}
    assert facts["updates"] == ("40", "of 40")
    assert facts["best BLEU"][0] == f"{best['bleu']:.2f}"
    assert entry["valid"]["update"][entry["best"]] == best["update"]
    assert f"BLEU {valid[-1]['bleu']:.2f}, perplexity {valid[-1]['ppl']:.2f} (1 would be perfect)" in entry["outlook"]
    (typed, command), (repeats, again) = entry["commands"]
    assert (typed, repeats) == ("typed", "repeats these 40 updates")
    assert re.match("nmt train .*/data'? --save-dir", command)
    assert again == f"nmt train --config {trained}/run/config.toml --save-dir {trained}/run-again"
    assert [update for update, _ in entry["samples"][0]["outputs"]] == [20, 40]


@pytest.mark.parametrize(("ppls", "said"), [
    ([], "No validation has been made yet"),
    ([9.0], "There are too few validations to say whether more time would help."),
    ([9.0, 8.0, 6.0, 5.0], "Perplexity has fallen by 38% since update 20 of 40: the same time again would"),
    ([9.0, 5.0, 5.0, 4.99], "Perplexity has hardly fallen since update 20 of 40: more text would help more than"),
    ([9.0, 5.0, 5.0, 6.0], "Perplexity has risen by 20% since update 20 of 40: more text would help, and more"),
])  # fmt: skip
def test_the_report_says_what_more_time_would_bring(tmp_path: Path, ppls: list[float], said: str) -> None:
    valid = [valid_record(10 * i, math.log(ppl), 20.0) for i, ppl in enumerate(ppls, start=1)]
    trained = [train_record(10 * i, 2.0) | {"epoch": i} for i in range(1, 5)]
    (entry,) = reported(tmp_path, write_run(tmp_path / "run", [start_record(), *trained, *valid]))["runs"]
    assert said in entry["outlook"]
    assert not ppls or "The training is in epoch 5." in entry["outlook"]


def test_the_report_says_whether_a_run_goes_on(tmp_path: Path) -> None:
    def shown(most: int, *end: dict) -> dict:
        folder = write_run(tmp_path / "run", [start_record(max_updates=most), train_record(40, 2.0), *end])
        return reported(tmp_path, folder)["runs"][0]  # type: ignore[no-any-return]

    assert (shown(40)["status"], shown(50)["status"]) == ("finished", "stopped")
    clock = train_record(41, 2.0) | {"max_updates": 60}  # with --hours, the number changes
    entry = shown(40, clock)
    assert (entry["status"], entry["facts"][0]) == ("stopped", ["updates", "41", "of 60"])
    failure = {"kind": "end", "update": 40, "outcome": "failed", "message": "why"}
    entry = shown(50, failure)
    assert (entry["status"], entry["message"]) == ("failed", "why")
    with locked(tmp_path / "run" / ".lock", "busy", "wait"):
        assert shown(50, failure)["status"] == "running"  # it is about to resume
        entry = shown(50)
    assert entry["status"] == "running"
    assert ["training time", "0:00:20", "about 0:00:05 left"] in entry["facts"]


def test_a_watched_report_follows_the_training(tmp_path: Path) -> None:
    started = [start_record(), train_record(10, 3.0)]
    folder = write_run(tmp_path / "run", started)
    with running("report", folder, "--watch") as server:
        page = server.get("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        (text,) = PAGE_DATA.findall(page.body.decode())
        version = json.loads(text)["version"]
        assert server.get(f"/data?{version}").status == 204
        write_run(folder, [*started, train_record(20, 2.0)])
        newer = server.get(f"/data?{version}")
        assert newer.headers["content-type"] == "application/json; charset=utf-8"
        assert newer.json["runs"][0]["train"]["nll"] == [3, 2]
        assert server.get(f"/data?{newer.json['version']}").status == 204
        assert server.get("/nowhere").status == 404
        # The name of another site may lead to this machine.
        for host, status in (("localhost", 200), ("other.example", 403), ("[", 403)):
            assert server.get("/", Host=host).status == status
        (folder / "metrics.jsonl").unlink()
        assert server.get(f"/data?{version}").status == 500
