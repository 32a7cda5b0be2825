"""The HTTP service gives the answers of `nmt generate` and `nmt rescore`, however requests share batches."""

import json
import os
import random
import re
import shutil
import signal
import socket
from base64 import b64decode, b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import ELOQUENT, chinese_codec, eloquent_checkpoint, generated, saved, some_sentences
from commands import failed, run
from servers import Server, head, hold, new_interpreter, serving, texts

from nmt.config import ServeConfig
from nmt.serving.schema import search_config

FP32 = ["--precision=fp32", "--device=cpu"]
# The translations of the model with random weights seldom end by themselves.
SHORT = {"max_length_offset": 3}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(eloquent_checkpoint(2), tmp_path_factory.mktemp("model") / "model.safetensors")


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    with serving(model, *FP32, "--max-waiting=300") as running:
        yield running


@pytest.fixture(scope="module")
def chinese_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    checkpoint = eloquent_checkpoint(2, codec=chinese_codec(lower_capitals=True))
    path = saved(checkpoint, tmp_path_factory.mktemp("chinese") / "model.safetensors")
    with serving(path, *FP32) as running:
        yield running


def expected_texts(model: Path, lines: list[str]) -> list[str]:
    translations = generated(model, lines, "--precision=fp32", "--max-length-offset=3")
    return [line["hypotheses"][0]["text"] for line in translations]


def hypotheses(answer: Any) -> list[list[dict[str, Any]]]:
    return [s["hypotheses"] for translation in answer["translations"] for s in translation["sentences"]]


def test_requests_of_many_clients_share_batches_and_get_the_answers_of_generate(model: Path) -> None:
    draw, lines = random.Random(1), some_sentences(100, seed=5)
    requests = [lines[:1]]
    while (first := sum(map(len, requests))) < len(lines):
        requests.append(lines[first : first + draw.choice([1, 1, 1, 2, 7])])
    with ThreadPoolExecutor(len(requests)) as clients, serving(model, *FP32, before=hold) as server:
        answers = []
        for request in requests:  # all others wait while the worker has the first one
            answers.append(clients.submit(server.translate, request, **SHORT))
            server.wait_for("queued")
        server.release()
        translations = [text for answer in answers for text in texts(answer.result())]
        figures = dict(re.findall(rb"nmt_batch_sentences_(sum|count) (.*)", server.get("/metrics").body))
    assert translations == expected_texts(model, lines)
    assert len(set(translations)) > 60
    assert float(figures[b"sum"]) / float(figures[b"count"]) > len(lines) / 5


@pytest.mark.parametrize("options", [
    {"beam": 3, "n_best": 2, "alpha": 0.2},
    {"alignments": True},
    {"sample": True, "samples": 2, "top_k": 5, "seed": 3},
])  # fmt: skip
def test_options_of_a_request_are_those_of_generate(model: Path, server: Server, options: dict[str, Any]) -> None:
    lines = ["some words to learn", "and a few more"]
    fields = options | SHORT
    flags = [f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in fields.items()]
    expected = generated(model, lines, "--precision=fp32", *flags)
    for ours, theirs in zip(hypotheses(server.translate(lines, **fields)), expected, strict=True):
        for h, other in zip(ours, theirs["hypotheses"], strict=True):
            assert (h["text"], h.get("alignment")) == (other["text"], other.get("alignment"))
            assert h["log_probs"] == pytest.approx(other["log_probs"], abs=1e-5)
            assert ("words" in h) == ("alignments" in options)


def test_prefix_and_constraints_are_kept(server: Server) -> None:
    fields = {"prefix": "um ol", "constraints": ["xyz"], "max_length_offset": 30}
    (text,) = texts(server.translate("a few words", **fields))
    assert text.startswith("um ol") and "xyz" in text
    for source, said in (("a few\nwords", "2; send its sentences one by one"), (" ", "none; give it a sentence")):
        assert f"one sentence, not {said}" in server.refused("/translate", {"source": source, **fields})


def test_texts_are_split_into_sentences_and_keep_their_lines(model: Path, server: Server) -> None:
    text = "\nSome words. Learn more!  A few?\n \n\nTo learn.\n"
    (translation,) = server.translate(text, **SHORT)["translations"]
    sentences = ["Some words.", "Learn more!", "A few?", "To learn."]
    numbered_sentences = [(s["line"], s["source"]) for s in translation["sentences"]]
    assert numbered_sentences == list(zip([1, 1, 1, 4], sentences, strict=True))
    first, second, third, fourth = expected_texts(model, sentences)
    assert translation["text"] == f"\n{first} {second}  {third}\n \n\n{fourth}\n"
    (windows,) = texts(server.translate(text.replace("\n", "\r\n"), **SHORT))
    assert windows == translation["text"].replace("\n", "\r\n")
    (whole,) = server.translate(text, split=False)["translations"]
    assert [s["line"] for s in whole["sentences"]] == [1, 4]
    assert server.translate([])["translations"] == []
    assert server.translate("")["translations"] == [{"text": "", "sentences": []}]


def test_scores_are_those_of_rescore(model: Path, server: Server) -> None:
    pairs = [("some words", "um ol"), ("more pieces", "ab cd !"), ("", "ab")]
    answer = server.post("/score", {"pairs": [{"source": source, "target": target} for source, target in pairs]}).json
    stdin = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
    command = ["rescore", model, *FP32, "--output-format=jsonl", "--alignments"]
    expected = [json.loads(line)["rescored"] for line in run(*command, stdin=stdin).stdout.splitlines()]
    for ours, theirs in zip(answer["scores"], expected, strict=True):
        assert (ours["pieces"], ours["alignment"]) == (theirs["pieces"], theirs["alignment"])
        assert ours["log_probs"] == pytest.approx(theirs["log_probs"], abs=1e-5)


def test_alternatives_are_the_most_probable_words_behind_a_prefix(server: Server) -> None:
    source, prefix = "some words to learn", "more"
    alternatives = server.post("/alternatives", {"source": source, "prefix": prefix, "count": 5}).json["alternatives"]
    assert 2 <= len({a["prefix"] for a in alternatives}) == len(alternatives) <= 5
    assert all(a["prefix"].startswith(prefix) and a["text"].startswith(a["prefix"]) for a in alternatives)
    assert all(a["prefix"].endswith(a["word"]) for a in alternatives)
    spaced = server.post("/alternatives", {"source": source, "prefix": "more  pieces"}).json["alternatives"]
    assert all(a["prefix"].startswith("more  pieces") for a in spaced)
    new = server.post("/alternatives", {"source": source, "prefix": f"{prefix} ", "count": 5}).json["alternatives"]
    assert [a for a in alternatives if a["prefix"].startswith(f"{prefix} ")] == new != alternatives
    # For words of one piece, the model itself says the same: log P of the prefix with it, less that of the prefix.
    pairs = [{"source": source, "target": target} for target in (prefix, *(a["prefix"] for a in alternatives))]
    shorter, *longer = server.post("/score", {"pairs": pairs}).json["scores"]
    expected = {
        pair["target"]: sum(scored["log_probs"][:-1]) - sum(shorter["log_probs"][:-1])
        for pair, scored in zip(pairs[1:], longer, strict=True)
        if len(scored["pieces"]) == len(shorter["pieces"]) + 1
    }
    assert len(expected) > 2
    same = {a["prefix"]: a["log_prob"] for a in alternatives if a["prefix"] in expected}
    assert same == pytest.approx(expected, abs=1e-4)
    assert [a["log_prob"] for a in alternatives if a["prefix"] in expected] == sorted(same.values(), reverse=True)


def test_alternatives_of_a_line_in_capitals_are_in_capitals(chinese_server: Server) -> None:
    lower, capitals = (
        chinese_server.post("/alternatives", {"source": source, "prefix": prefix}).json["alternatives"]
        for source, prefix in (("some words", "words"), ("SOME WORDS", "WORDS"))
    )
    shown = "word", "prefix", "text"
    assert [alternative | {name: alternative[name].upper() for name in shown} for alternative in lower] == capitals
    assert any(alternative["word"] != alternative["word"].upper() for alternative in lower)


def test_words_are_segments_of_the_translation(server: Server, chinese_server: Server) -> None:
    sources = some_sentences(20, seed=9)
    for running, spaces in ((server, True), (chinese_server, False)):
        languages = running.get("/models").json["languages"]
        assert {each["code"]: each["spaces"] for each in languages} == {"en": True, "de" if spaces else "zh": spaces}
        translations = [h for (h, *_) in hypotheses(running.translate(sources, alignments=True, max_length_offset=20))]
        for h in translations:
            assert "".join(h["segments"]) == h["text"]
            assert len(h["words"]) == len(h["pieces"])
            assert h["words"] == sorted(h["words"])
            assert set(h["words"]) == set(range(len(h["segments"])))
            assert not spaces or [segment.strip() for segment in h["segments"]] == h["text"].split()
        if not spaces:
            assert sum(len(h["segments"]) for h in translations) > sum(len(h["text"].split()) for h in translations)


def test_words_of_a_language_without_spaces_are_groups_of_pieces(chinese_server: Server) -> None:
    prefix = "词语片龘和words。"  # three bytes spell 龘
    ((h, *_),) = hypotheses(chinese_server.translate("some words", prefix=prefix, alignments=True))
    assert h["pieces"][:5] == ["▁", "词语", "片", "<0xE9>", "<0xBE>"]
    assert h["segments"][:4] == ["词语", "片", "龘", "和"]
    assert h["words"][:7] == [0, 0, 1, 2, 2, 2, 3]
    body = {"source": "some words", "prefix": "词语片", "count": 6}
    alternatives = chinese_server.post("/alternatives", body).json["alternatives"]
    assert len({a["word"] for a in alternatives}) == len(alternatives) > 2
    for a in alternatives:
        assert a["prefix"].split() == ["词语片" + a["word"]] or a["prefix"].split() == ["词语片", a["word"]]
        assert a["text"].startswith(a["prefix"])


def test_lengths_fit_the_positions_that_a_model_has_learned(tmp_path: Path) -> None:
    few = eloquent_checkpoint(1, config=replace(ELOQUENT, learned_positions=32))
    with serving(saved(few, tmp_path / "few.safetensors"), *FP32) as server:
        for fields in ({}, {"max_length_offset": 0}, {"max_length_offset": 256}):
            (sentence,) = server.translate("some words " * 20, **fields)["translations"][0]["sentences"]
            assert sentence["hypotheses"][0]["text"], fields
        assert server.post("/alternatives", {"source": "some words", "prefix": "more"}).json["alternatives"]


@pytest.mark.parametrize("path, body, status, said", [
    ("/translate", {}, 400, "source is wrong: Field required"),
    ("/translate", [], 400, "the body must be a JSON object, sent with the header Content-Type: application/json"),
    ("/translate", {"source": "a", "beam": "4"}, 400, "beam must be a whole number, but is '4'"),
    ("/translate", {"source": "a", "beam": 17}, 400, "beam must be at most 16 on this server, but is 17"),
    ("/translate", {"source": "a", "n_best": 5}, 400, "n_best must be at most beam (4), but is 5"),
    ("/translate", {"source": "a", "batch_tokens": 5}, 400, "'batch_tokens' is no field"),
    ("/translate", {"source": "a", "max_length_offset": 99999}, 400, "max_length_offset must be at most 256"),
    ("/translate", {"source": "a", "max_source_length": 1}, 400, "max_source_length must be at least 16 on this"),
    ("/translate", {"source": "a", "scorer": "x"}, 400, "scorer x is unknown; no --user-module registers one"),
    ("/translate", {"source": "a", "constraints": ["a"] * 17}, 400, "constraints is wrong: List should have"),
    ("/translate", {"source": "a", "constraints": ["a"], "sample": True}, 400, "work with beam search only"),
    ("/translate", {"source": "a", "prefix": "ab " * 200}, 400, "its prefix has"),
    ("/translate", {"source": "a", "model": "de-en"}, 404, "there is no model 'de-en'; this server has en-de"),
    ("/translate", {"source": "a" * 10_001}, 413, "10,001 characters of text, but at most 10,000"),
    ("/translate", {"source": ["a"] * 301}, 400, "301 sentences, but at most 300 may wait"),
    ("/translate", {"source": "\ud800"}, 400, "half of a surrogate pair"),
    ("/score", {"pairs": [{"source": "a"}]}, 400, "pairs.0.target is wrong: Field required"),
    ("/alternatives", {"source": "a", "count": 99}, 400, "count is wrong: "),
    ("/alternatives", {"source": ""}, 400, "source must be a single sentence"),
    ("/models", {}, 405, "Method Not Allowed"),
])  # fmt: skip
def test_impossible_requests_are_refused(server: Server, path: str, body: Any, status: int, said: str) -> None:
    assert said in server.refused(path, body, status)


def test_models_pages_and_the_description_of_the_api(server: Server) -> None:
    (model,) = server.get("/models").json["models"]
    assert (model["name"], model["source_lang"], model["target_lang"]) == ("en-de", "en", "de")
    assert server.get("/health").json == {"status": "ok"}
    described = server.get("/openapi.json").json
    assert {"/translate", "/score", "/models", "/health", "/metrics"} <= described["paths"].keys()
    assert described["components"]["schemas"]["TranslateBody"]["properties"]["beam"]["default"] == 4
    kinds = {"/": "html", "/docs": "html", "/static/page.js": "javascript", "/static/style.css": "css"}
    for path, kind in kinds.items():
        page = server.get(path)
        assert page.headers["content-type"] == f"text/{kind}; charset=utf-8"
        assert page.body.startswith(b"<!doctype html>") == (kind == "html")


def test_what_is_in_flight_is_answered_before_the_end(model: Path, tmp_path: Path) -> None:
    """Ctrl-C comes when the server has begun to read a request, and the rest of the request follows."""
    lines = some_sentences(20, seed=6)
    body = json.dumps({"source": lines, **SHORT}).encode()
    served = Path(shutil.copy(model, tmp_path))
    with serving(served, *FP32, "--workers=2", instead=new_interpreter) as server:
        saved(eloquent_checkpoint(1), served)  # the loaded model goes on
        with server.connect() as client, server.connect() as idle:
            client.sendall(head(len(body), "Expect: 100-continue"))
            assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            os.killpg(server.process.pid, signal.SIGINT)
            assert idle.recv(1) == b""  # the server is about to end
            client.sendall(body)
            answer = client.makefile("rb").read().partition(b"\r\n\r\n")[2]
        server.ended()
    assert texts(json.loads(answer)) == expected_texts(model, lines)


def test_a_request_without_a_beam_gets_the_largest_allowed_one() -> None:
    assert [search_config({}, ServeConfig(max_beam=most)).beam for most in (2, 16)] == [2, 4]


def test_a_wrong_start_ends_in_one_sentence(model: Path, tmp_path: Path) -> None:
    assert "there is no model to serve" in failed("serve", "--port=0")
    assert "--model must be NAME=CHECKPOINT, but is 'x'" in failed("serve", "--port=0", "--model=x")
    assert "are both called en-de; give --model NAME=" in failed("serve", "--port=0", model, model)
    assert "no-file cannot be read" in failed("serve", model, "--port=0", "--token-file", tmp_path / "no-file")
    for origin in ("*", "https://a.example/"):
        assert "--allow-origin must be a scheme and a host" in failed(
            "serve", model, "--port=0", f"--allow-origin={origin}"
        )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot be used" in failed("serve", model, f"--port={taken.getsockname()[1]}")


def test_attention_is_data_for_a_page_that_runs_its_own_scripts_only(server: Server) -> None:
    attention = server.post("/attention", {"source": "some words", "target": "um ol"}).json
    cross = attention["kinds"]["cross"]
    weights = np.frombuffer(b64decode(cross["weights"]), "<f4").reshape(
        cross["layers"], cross["heads"], len(cross["queries"]), len(cross["keys"])
    )
    assert np.allclose(weights.sum(-1), 1, atol=1e-3)
    page = server.get("/static/attention.html")
    scripts = re.findall(b"<script>(.*?)</script>", page.body, re.DOTALL)
    hashes = " ".join(f"'sha256-{b64encode(sha256(script).digest()).decode()}'" for script in scripts)
    assert f"default-src 'none'; script-src {hashes}; " in page.headers["content-security-policy"]
