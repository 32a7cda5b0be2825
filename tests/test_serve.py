"""The HTTP service gives the answers of `nmt generate` and `nmt rescore`, however requests share batches."""

import json
import random
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from browser import chromium
from checkpoints import chinese_codec, eloquent_checkpoint, some_sentences
from commands import failed, run
from servers import Server, serving

from nmt.checkpoint import save_checkpoint

FP32 = ["--precision=fp32", "--device=cpu"]
# The translations of the model with random weights seldom end by themselves.
SHORT = {"max_length_offset": 3}
SHOWN = "document.querySelector('#translation').textContent"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.pt"
    save_checkpoint(eloquent_checkpoint(2), path)
    return path


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, model, *FP32, "--max-waiting=300") as running:
        yield running


@pytest.fixture(scope="module")
def chinese_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("chinese")
    save_checkpoint(eloquent_checkpoint(2, codec=chinese_codec()), folder / "model.pt")
    with serving(folder, folder / "model.pt", *FP32) as running:
        yield running


def generated(model: Path, lines: list[str], *options: str) -> list[list[dict[str, Any]]]:
    """Returns the hypotheses of `nmt generate` for each line."""
    command = ["generate", model, *FP32, "--output-format=jsonl", "--max-length-offset=3", *options]
    stdin = "".join(f"{line}\n" for line in lines).encode()
    return [json.loads(line)["hypotheses"] for line in run(*command, stdin=stdin).stdout.splitlines()]


def hypotheses(answer: Any) -> list[list[dict[str, Any]]]:
    return [s["hypotheses"] for translation in answer["translations"] for s in translation["sentences"]]


def test_requests_of_many_clients_get_the_answers_of_generate(model: Path, server: Server) -> None:
    draw = random.Random(1)
    lines = some_sentences(240, seed=5)
    requests, first = [], 0
    while first < len(lines):
        size = draw.choice([1, 1, 1, 2, 7])
        requests.append(lines[first : first + size])
        first += size
    with ThreadPoolExecutor(32) as clients:
        answers = list(clients.map(lambda request: server.translate(request, **SHORT), requests))
    expected = [found[0]["text"] for found in generated(model, lines)]
    assert len(set(expected)) > 150
    assert [t["text"] for answer in answers for t in answer["translations"]] == expected
    assert b"nmt_batch_sentences_bucket" in server.get("/metrics").body


@pytest.mark.parametrize("options", [
    {"beam": 3, "n_best": 2, "alpha": 0.2},
    {"alignments": True},
    {"sample": True, "samples": 2, "top_k": 5, "seed": 3},
])  # fmt: skip
def test_options_of_a_request_are_those_of_generate(model: Path, server: Server, options: dict[str, Any]) -> None:
    lines = ["some words to learn", "and a few more"]
    flags = [f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in options.items()]
    found = hypotheses(server.translate(lines, **options, **SHORT))
    words = [[h.pop("words", None) for h in of_line] for of_line in found]
    expected = generated(model, lines, *flags)
    for ours, theirs in zip(found, expected, strict=True):
        assert [h["text"] for h in ours] == [h["text"] for h in theirs]
        assert [h.get("alignment") for h in ours] == [h.get("alignment") for h in theirs]
        for h, other in zip(ours, theirs, strict=True):
            assert h["log_probs"] == pytest.approx(other["log_probs"], abs=1e-5)
    assert all(
        (of_hypothesis is not None) == ("alignments" in options) for of_line in words for of_hypothesis in of_line
    )


def test_prefix_and_constraints_are_kept(server: Server) -> None:
    fields = {"prefix": "um ol", "constraints": ["xyz"], "max_length_offset": 30}
    answer = server.translate("a few words", **fields)
    assert answer["translations"][0]["text"].startswith("um ol")
    assert "xyz" in answer["translations"][0]["text"]
    assert "one sentence, but it has 2" in server.refused("/translate", {"source": "a few\nwords", **fields})


def test_texts_are_split_into_sentences_and_keep_their_lines(model: Path, server: Server) -> None:
    text = "\nSome words. Learn more!  A few?\n \n\nTo learn.\n"
    (translation,) = server.translate(text, **SHORT)["translations"]
    sentences = ["Some words.", "Learn more!", "A few?", "To learn."]
    found = [(s["line"], s["source"]) for s in translation["sentences"]]
    assert found == list(zip([1, 1, 1, 4], sentences, strict=True))
    first, second, third, fourth = (found[0]["text"] for found in generated(model, sentences))
    assert translation["text"] == f"\n{first} {second} {third}\n\n\n{fourth}\n"
    (whole,) = server.translate(text, split=False)["translations"]
    assert [s["line"] for s in whole["sentences"]] == [1, 4]
    assert server.translate([])["translations"] == []
    assert server.translate("")["translations"] == [{"text": "", "sentences": []}]


def test_scores_are_those_of_rescore(model: Path, server: Server) -> None:
    pairs = [("some words", "um ol"), ("more pieces", "ab cd !"), ("", "ab")]
    body = {"pairs": [{"source": source, "target": target} for source, target in pairs]}
    found = server.post("/score", body).json["scores"]
    stdin = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
    command = ["rescore", model, *FP32, "--output-format=jsonl", "--alignments"]
    expected = [json.loads(line)["rescored"] for line in run(*command, stdin=stdin).stdout.splitlines()]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours["pieces"] == theirs["pieces"]
        assert ours["alignment"] == theirs["alignment"]
        assert ours["log_probs"] == pytest.approx(theirs["log_probs"], abs=1e-5)


def test_alternatives_are_the_most_probable_words_behind_a_prefix(server: Server) -> None:
    source, prefix = "some words to learn", "more"
    found = server.post("/alternatives", {"source": source, "prefix": prefix, "count": 5}).json["alternatives"]
    assert 2 <= len({a["prefix"] for a in found}) == len(found) <= 5
    assert all(a["prefix"].startswith(prefix) and a["text"].startswith(a["prefix"]) for a in found)
    assert all(a["prefix"].endswith(a["word"]) for a in found)
    spaced = server.post("/alternatives", {"source": source, "prefix": "more  pieces"}).json["alternatives"]
    assert all(a["prefix"].startswith("more  pieces") for a in spaced)
    # For words of one piece, the model itself says the same: log P of the prefix with it, less that of the prefix.
    pairs = [{"source": source, "target": target} for target in (prefix, *(a["prefix"] for a in found))]
    shorter, *longer = server.post("/score", {"pairs": pairs}).json["scores"]
    expected = {
        pair["target"]: sum(scored["log_probs"][:-1]) - sum(shorter["log_probs"][:-1])
        for pair, scored in zip(pairs[1:], longer, strict=True)
        if len(scored["pieces"]) == len(shorter["pieces"]) + 1
    }
    assert len(expected) > 2
    same = {a["prefix"]: a["log_prob"] for a in found if a["prefix"] in expected}
    assert same == pytest.approx(expected, abs=1e-4)
    assert [a["log_prob"] for a in found if a["prefix"] in expected] == sorted(same.values(), reverse=True)


def test_words_are_segments_of_the_translation(server: Server, chinese_server: Server) -> None:
    sources = some_sentences(20, seed=9)
    for running, spaces in ((server, True), (chinese_server, False)):
        assert [model["target_spaces"] for model in running.get("/models").json["models"]] == [spaces]
        found = [h for (h, *_) in hypotheses(running.translate(sources, alignments=True, max_length_offset=20))]
        for h in found:
            assert "".join(h["segments"]) == h["text"]
            assert len(h["words"]) == len(h["pieces"])
            assert h["words"] == sorted(h["words"])
            assert set(h["words"]) == set(range(len(h["segments"])))
            assert not spaces or [segment.strip() for segment in h["segments"]] == h["text"].split()
        if not spaces:
            assert sum(len(h["segments"]) for h in found) > sum(len(h["text"].split()) for h in found)


def test_words_of_a_language_without_spaces_are_groups_of_pieces(chinese_server: Server) -> None:
    prefix = "词语片龘和words。"  # three bytes spell 龘
    ((h, *_),) = hypotheses(chinese_server.translate("some words", prefix=prefix, alignments=True))
    assert h["pieces"][:5] == ["▁", "词语", "片", "<0xE9>", "<0xBE>"]
    assert h["segments"][:4] == ["词语", "片", "龘", "和"]
    assert h["words"][:7] == [0, 0, 1, 2, 2, 2, 3]
    body = {"source": "some words", "prefix": "词语片", "count": 6}
    found = chinese_server.post("/alternatives", body).json["alternatives"]
    assert len({a["word"] for a in found}) == len(found) > 2
    for a in found:
        assert a["prefix"].split() == ["词语片" + a["word"]] or a["prefix"].split() == ["词语片", a["word"]]
        assert a["text"].startswith(a["prefix"])


@pytest.mark.parametrize("path, body, status, said", [
    ("/translate", {}, 400, "source is wrong: Field required"),
    ("/translate", {"source": 3}, 400, "source is wrong: "),
    ("/translate", {"source": "a", "beem": 3}, 400, "'beem' is no field"),
    ("/translate", {"source": "a", "beam": "4"}, 400, "beam must be a whole number, but is '4'"),
    ("/translate", {"source": "a", "beam": 17}, 400, "beam must be at most 16 on this server, but is 17"),
    ("/translate", {"source": "a", "n_best": 5}, 400, "n_best must be at most beam (4), but is 5"),
    ("/translate", {"source": "a", "batch_tokens": 5}, 400, "'batch_tokens' is no field"),
    ("/translate", {"source": "a", "max_length_offset": 99999}, 400, "max_length_offset must be at most 256"),
    ("/translate", {"source": "a", "constraints": ["a"] * 17}, 400, "constraints must be at most 16"),
    ("/translate", {"source": "a", "constraints": ["a"], "sample": True}, 400, "work with beam search only"),
    ("/translate", {"source": "a", "prefix": "ab " * 200}, 400, "its prefix has"),
    ("/translate", {"source": "a", "model": "de-en"}, 404, "there is no model 'de-en'; this server has en-de"),
    ("/translate", {"source": "a" * 10_001}, 413, "10,001 characters of text, but at most 10,000"),
    ("/translate", {"source": ["a"] * 301}, 400, "301 sentences, but at most 300 may wait"),
    ("/translate", {"source": "\ud800"}, 400, "half of a surrogate pair"),
    ("/score", {"pairs": [{"source": "a"}]}, 400, "pairs.0.target is wrong: Field required"),
    ("/alternatives", {"source": "a", "count": 99}, 400, "count is wrong: "),
    ("/alternatives", {"source": ""}, 400, "source must be a single sentence"),
    ("/nowhere", {}, 404, "Not Found"),
    ("/models", {}, 405, "Method Not Allowed"),
])  # fmt: skip
def test_impossible_requests_are_refused_in_one_sentence(
    server: Server, path: str, body: Any, status: int, said: str
) -> None:
    assert said in server.refused(path, body, status)


def test_models_and_the_description_of_the_api(server: Server) -> None:
    (model,) = server.get("/models").json["models"]
    assert (model["name"], model["source_lang"], model["target_lang"]) == ("en-de", "en", "de")
    assert server.get("/health").json == {"status": "ok"}
    described = server.get("/openapi.json").json
    assert {"/translate", "/score", "/models", "/health", "/metrics"} <= described["paths"].keys()
    assert described["components"]["schemas"]["TranslateBody"]["properties"]["beam"]["default"] == 4


def test_what_is_in_flight_is_answered_before_the_end(model: Path, tmp_path: Path) -> None:
    lines = some_sentences(60, seed=6)
    with serving(tmp_path, model, *FP32, "--workers=2") as server:
        with ThreadPoolExecutor(8) as clients:
            answers = [clients.submit(server.translate, lines, **SHORT) for _ in range(8)]
            while b"nmt_batch_sentences_count 0.0" in server.get("/metrics").body:
                pass
            save_checkpoint(eloquent_checkpoint(1), model)  # the loaded model goes on
            code = server.stop(signal.SIGTERM)
            found = [answer.result() for answer in answers]
        save_checkpoint(eloquent_checkpoint(2), model)
        assert code == 0
        expected = [h[0]["text"] for h in generated(model, lines)]
        assert all([t["text"] for t in answer["translations"]] == expected for answer in found)


def test_a_wrong_start_ends_in_one_sentence(model: Path, tmp_path: Path) -> None:
    assert "there is no model to serve" in failed("serve", "--port=0")
    assert "--model must be NAME=CHECKPOINT, but is 'x'" in failed("serve", "--model=x")
    assert "are both called en-de; give --model NAME=" in failed("serve", model, model)
    assert "no-file cannot be read" in failed("serve", model, "--token-file", tmp_path / "no-file")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot be used" in failed("serve", model, f"--port={taken.getsockname()[1]}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as launched:
        yield launched


@pytest.fixture
def browser_page(browser: Any, server: Server) -> Iterator[Any]:
    """Opens the page of the server, and checks at the end that no script failed or was blocked."""
    page = browser.new_page()
    messages: list[str] = []
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("console", lambda message: messages.append(message.text))
    page.goto(f"http://127.0.0.1:{server.port}/")
    yield page
    page.close()
    assert all("status of 400" in message for message in messages), messages


def test_a_person_chooses_another_word_and_the_rest_is_translated_anew(server: Server, browser_page: Any) -> None:
    page, sources = browser_page, some_sentences(20, seed=8)
    texts = [translation["text"] for translation in server.translate(sources)["translations"]]
    source, expected = max(zip(sources, texts, strict=True), key=lambda pair: len(pair[1].split()))
    assert len(expected.split()) > 1
    page.locator("#source").press_sequentially(source)
    page.wait_for_function(f"text => {SHOWN} === text", arg=expected)
    words = page.locator("#translation .word")
    words.nth(0).hover()
    assert page.locator("#backdrop mark").count() == 1
    words.nth(1).click()
    page.wait_for_selector("#alternatives button")
    prefix = expected.split()[0]
    offered = server.post("/alternatives", {"source": source, "prefix": prefix}).json["alternatives"]
    assert page.locator("#alternatives button > :first-child").all_inner_texts() == [a["word"] for a in offered]
    other = next(number for number, a in enumerate(offered) if not expected.startswith(a["prefix"]))
    page.locator("#alternatives button").nth(other).click()
    changed = server.translate(source, prefix=offered[other]["prefix"])["translations"][0]["text"]
    page.wait_for_function(f"text => {SHOWN} === text", arg=changed)
    assert changed.startswith(offered[other]["prefix"])
    assert changed != expected


def test_a_click_changes_a_part_of_a_translation_without_spaces(chinese_server: Server, browser: Any) -> None:
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{chinese_server.port}/")
    source = "some words. to learn"
    answer = chinese_server.translate(source, alignments=True, n_best=4)
    page.fill("#source", source)
    page.wait_for_function(f"text => {SHOWN} === text", arg=answer["translations"][0]["text"])
    segments = hypotheses(answer)[0][0]["segments"]
    words = page.locator("#translation .sentence").first.locator(".word")
    assert words.all_text_contents() == [segment.strip() for segment in segments]
    words.nth(2).click()
    page.wait_for_selector("#alternatives button")
    prefix = "".join(segments[:2])
    body = {"source": "some words.", "prefix": prefix}
    offered = chinese_server.post("/alternatives", body).json["alternatives"]
    assert page.locator("#alternatives button > :first-child").all_inner_texts() == [a["word"] for a in offered]
    page.fill("#alternatives input", "片段")
    page.press("#alternatives input", "Enter")
    expected = prefix + segments[2].replace(segments[2].strip(), "片段")
    page.wait_for_function(f"text => {SHOWN}.startsWith(text)", arg=expected)
    page.close()


def test_the_page_shows_hypotheses_attention_and_errors(server: Server, browser_page: Any) -> None:
    page = browser_page
    page.fill("#source", "some <b>words</b>\n\nto learn")
    page.wait_for_selector("#n-best li:nth-child(4)")
    assert "\n\n" in page.locator("#translation").text_content()
    assert page.locator("#translation b").count() == 0
    page.locator("#n-best button").nth(1).click()
    second = server.translate("some <b>words</b>", n_best=2)["translations"][0]["sentences"][0]["hypotheses"][1]["text"]
    assert page.locator("#translation .sentence").first.text_content().split() == second.split()
    page.click("#show-attention")
    frame = page.frame_locator("#attention iframe")
    frame.locator("svg").first.wait_for()
    page.click("#close-attention")
    page.fill("#beam", "99")
    page.locator("#beam").blur()
    page.wait_for_selector("#status.error")
    assert "beam must be at most 16" in page.inner_text("#status")


def test_the_description_of_the_api_needs_no_network(browser_page: Any) -> None:
    requested: list[str] = []
    browser_page.on("request", lambda request: requested.append(request.url))
    browser_page.goto(browser_page.url + "docs")
    browser_page.wait_for_selector("text=POST /translate")
    assert browser_page.locator("code", has_text="max_length_offset").count() == 1
    assert all(url.startswith(("http://127.0.0.1:", "data:")) for url in requested)
