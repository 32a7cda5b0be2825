"""What the pages show in a browser agrees with the logs and the weights, and hostile text stays text."""

import csv
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from browser import opened, start_record, train_record, valid_record, write_run
from checkpoints import (
    TEXT_CONFIG,
    chinese_codec,
    eloquent_checkpoint,
    multilingual_codec,
    saved,
    small_checkpoint,
    small_codec,
    some_sentences,
    two_models,
)
from commands import records, run
from forks import ROOT
from servers import Server, running, serving

from nmt.pages.attention import Attention, page_data
from nmt.pages.page import page
from nmt.text.codec import TextCodec

pytestmark = pytest.mark.nightly
HOSTILE = "</script><img src=x onerror=\"document.title='broken'\"><b>&amp; {{data}} ${x} \u2028 עברית"
SHOWN = "document.querySelector('#translation').textContent"
ROW = re.compile(r"(.+) (training|validation) update (\d+)(?: \([\d:]+\))?: ([\d.e-]+)")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright  # the gate does not need it

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert program, "Chromium was not found; install it (apt-get install chromium on Debian, Ubuntu)"
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Returns run folders: a long one, a short one in another range with a gap, one point, and constant scores."""
    folder = tmp_path_factory.mktemp("runs")
    long = [train_record(u, 1.2 + 7 * math.exp(-u / 40)) for u in range(10, 1001, 10)]
    long += [valid_record(u, 1.5 + 3 * math.exp(-u / 60) + u / 9000, u / 40) for u in range(200, 1001, 200)]
    short = [train_record(u, None if u == 203 else 6 + 1 / u) for u in range(7, 400, 7)]
    constant = [train_record(u, 2.0) for u in (100, 200)] + [valid_record(u, 2.0, 0.0) for u in (100, 200)]
    logs = {"long": long, "short": short, "point": [train_record(5, 4.0)], "constant": constant}
    return [write_run(folder / name, [start_record(max_updates=1000), *log]) for name, log in logs.items()]


def report_of(folder: Path, *arguments: str | Path) -> str:
    """Writes a report into a folder; returns its address."""
    run("report", *arguments, "--output", folder / "report.html")
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def report(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    return report_of(tmp_path_factory.mktemp("page"), *runs)


def logged(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    kinds = {"train": "training", "valid": "validation"}
    return {(kinds[record["kind"]], record["update"]): record for record in records(folder, *kinds)}


def tips(shown: Any) -> dict[str, list[tuple[str, str, int, float]]]:
    """Returns the rows of all visible tooltips by the chart: run, series, update and value."""
    texts = shown.evaluate("charts.map(c => [c.spec.id, c.tip.style.display === 'block' ? c.tip.innerText : ''])")
    rows_by_chart: dict[str, list[tuple[str, str, int, float]]] = {}
    for chart, text in texts:
        rows = [ROW.match(line).groups() for line in text.replace(",", "").splitlines()]  # type: ignore[union-attr]
        rows_by_chart[chart] = [(name, series, int(update), float(value)) for name, series, update, value in rows]
    return rows_by_chart


def open_all(shown: Any) -> None:
    """Opens the menus and all that a page has under a heading."""
    shown.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")


def words_of(alternatives: list[dict[str, Any]]) -> list[str]:
    """Returns the words of alternatives as the page lists them, the most probable first."""
    return [each["word"] for each in sorted(alternatives, key=lambda each: -each["log_prob"])]


def test_tooltips_of_all_charts_show_values_that_were_logged(browser: Any, report: str, runs: list[Path]) -> None:
    logs = {folder.name: logged(folder) for folder in runs}
    with opened(browser, report) as shown:
        shown.locator("[data-chart=nll]").scroll_into_view_if_needed()
        over = shown.locator("[data-chart=nll] .u-over")
        for share in (0.1, 0.204, 0.37, 0.6, 0.99):
            over.hover(position={"x": share * over.bounding_box()["width"], "y": 60})
            rows_by_chart = tips(shown)
            assert {row[0] for row in rows_by_chart["nll"]} == {
                name for name, last in (("long", 1), ("short", 0.4), ("constant", 0.2)) if share < last + 0.01
            }
            for chart, rows in rows_by_chart.items():
                for name, series, update, value in rows:
                    assert value == pytest.approx(logs[name][series, update][chart], rel=1e-3)
                    if series == "training":
                        assert abs(update - share * 1000) <= 12
        assert {row[1] for row in rows_by_chart["bleu"]} == {"validation"}
        shown.mouse.move(2, 2)
        assert not any(tips(shown).values())


def test_axes_hold_all_values_or_say_which_ones_they_do_not(browser: Any, report: str, runs: list[Path]) -> None:
    with opened(browser, report) as shown:
        ranges = dict(shown.evaluate("charts.map(c => [c.spec.id, [c.plot.scales.y.min, c.plot.scales.y.max]])"))
        logged_records = [record for folder in runs for record in logged(folder).values()]
        for chart, (low, high) in ranges.items():
            values = [record[chart] for record in logged_records if record.get(chart) is not None]
            above = [value for value in values if value > high]
            note = shown.locator(f"figure:has([data-chart={chart}]) .note").inner_text()
            assert min(values) >= low
            assert (f"▲ {len(above)} value" in note) == bool(above)
            assert above or "above" not in note
        assert ranges["nll"][1] > 6  # a whole run of perplexity 400 is not above the axis
        assert ranges["bleu"][0] == ranges["lr"][0] == 0
        for name in ("long", "short", "point"):
            shown.locator("#shown label", has_text=name).locator("input").uncheck()
        assert shown.evaluate("charts.find(c => c.spec.id === 'bleu').range") == [0, 1]
        assert shown.evaluate("charts.find(c => c.spec.id === 'nll').range") == pytest.approx([1.9, 2.1])


def test_logarithmic_axes_have_ticks_of_1_2_5(browser: Any, report: str) -> None:
    with opened(browser, report) as shown:
        assert shown.evaluate("logTicks(3, 470)") == [5, 10, 20, 50, 100, 200]
        assert shown.evaluate("logTicks(1e-3, 1e4)") == [1e-3, 0.01, 0.1, 1, 10, 100, 1000, 1e4]
        assert shown.evaluate("logTicks(1.1, 2.4)") == [1.5, 2]
        open_all(shown)
        shown.locator("figure:has([data-chart=lr])").get_by_text("logarithmic").click()
        assert shown.evaluate("charts.find(c => c.spec.id === 'lr').plot.scales.y.distr") == 3
        assert shown.evaluate("charts.find(c => c.spec.id === 'bleu').plot.scales.y.distr") == 1


def test_differences_are_those_of_options_that_both_runs_recorded(browser: Any, tmp_path: Path) -> None:
    old = start_record(seed=1)
    del old["options"]["min_delta"]
    for name, start in (("old", old), ("new", start_record(seed=2))):
        write_run(tmp_path / name, [start, train_record(10, 1.0)])
    with opened(browser, report_of(tmp_path, tmp_path / "old", tmp_path / "new")) as shown:
        rows = shown.locator("#differences td:first-child").all_inner_texts()
        assert rows == ["--seed"]
        assert shown.locator("#differences tr", has_text="--seed").inner_text().split() == ["--seed", "1", "2"]
    for name in ("new", "same"):
        write_run(tmp_path / name, [start_record(save_dir=name), train_record(10, 1.0)])
    with opened(browser, report_of(tmp_path, tmp_path / "new", tmp_path / "same")) as shown:
        assert shown.locator("#differences p").inner_text() == "The runs have the same options."


def test_zoom_smoothing_and_downloads(browser: Any, report: str, runs: list[Path]) -> None:
    with opened(browser, report) as shown:
        shown.locator("#from").fill("500")
        shown.locator("#from").press("Enter")
        assert shown.evaluate("charts.map(c => c.plot.scales.x.min)") == [500] * shown.evaluate("charts.length")
        assert shown.evaluate("charts.find(c => c.spec.id === 'nll').range[1]") < 2
        shown.locator("#reset").click()
        assert shown.evaluate("smoothed([4, null, 2], 0.75)") == [4, None, pytest.approx(20 / 7)]
        open_all(shown)
        with shown.expect_download() as download:
            shown.locator("figure:has([data-chart=nll])").get_by_text("CSV").click()
        values = [row["value"] for row in csv.DictReader(download.value.path().open())]
        expected = [record["nll"] for folder in runs for record in logged(folder).values() if record["nll"] is not None]
        assert sorted(map(float, filter(None, values))) == pytest.approx(sorted(expected), rel=1e-6)
        with shown.expect_download() as download:
            shown.locator("figure:has([data-chart=ppl])").get_by_text("SVG").click()
        svg = download.value.path().read_text()
        assert "Perplexity per piece" in svg
        assert "short, training" in svg


def test_keys_and_touch_move_the_cursor(browser: Any, report: str) -> None:
    with opened(browser, report, has_touch=True) as shown:
        shown.locator("[data-chart=lr]").focus()
        shown.keyboard.press("ArrowRight")
        shown.keyboard.press("ArrowRight")
        assert tips(shown)["lr"][-2:] == [("short", "training", 7, 7e-4), ("point", "training", 5, 5e-4)]
        shown.keyboard.press("Escape")
        assert not any(tips(shown).values())
        over = shown.locator("[data-chart=nll] .u-over")
        over.tap(position={"x": 0.9 * over.bounding_box()["width"], "y": 50})
        assert {row[2] for row in tips(shown)["lr"]} <= set(range(880, 921))
        shown.locator("h1").tap()
        assert not any(tips(shown).values())


def test_a_hundred_thousand_updates_are_shown(browser: Any, tmp_path: Path) -> None:
    log = [start_record(), *(train_record(u, 1 + 1e5 / (u + 1e4)) for u in range(1, 100_001))]
    with opened(browser, report_of(tmp_path, write_run(tmp_path / "run", log))) as shown:
        shown.evaluate("pointAt(77_777)")
        assert tips(shown)["nll"] == [("run", "training", 77_777, pytest.approx(1 + 1e5 / 87_777, rel=1e-3))]


def attention_page(folder: Path, source: list[str], target: list[str]) -> str:
    """Writes a page with random weights; returns its address."""
    attentions = {
        kind: Attention(queries, keys, random_weights(len(queries), len(keys)))
        for kind, queries, keys in (("encoder", source, source), ("decoder", target, target), ("cross", target, source))
    }
    content = page("attention", f"Attention {HOSTILE}", page_data(attentions))  # type: ignore[arg-type]
    (folder / "attention.html").write_text(content, encoding="utf-8")
    return (folder / "attention.html").as_uri()


def random_weights(rows: int, columns: int) -> torch.Tensor:
    return torch.rand(2, 3, rows, columns, generator=torch.Generator().manual_seed(1)).softmax(-1)


def test_hostile_text_stays_text(browser: Any, tmp_path: Path) -> None:
    sample = valid_record(10, 1.0, 5.0, HOSTILE)
    folder = write_run(tmp_path / "run", [start_record(init_from=HOSTILE), train_record(10, 1.0), sample])
    other = write_run(tmp_path / "other", [start_record(), train_record(10, 1.0), sample])
    report = report_of(tmp_path, folder, other, "--name", HOSTILE, "--name=other")
    for address in (report, attention_page(tmp_path, [HOSTILE, "▁a"], ["<s>", HOSTILE])):
        with opened(browser, address) as shown:
            assert HOSTILE.split("\u2028")[0].strip() in shown.title()
            assert shown.locator("img").count() == shown.locator("b >> text=amp").count() == 0
            assert shown.locator("h1").text_content().count("<img") == 1
            if address == report:
                assert shown.locator(".sample span[dir]").last.text_content() == HOSTILE
                shown.evaluate("pointAt(10)")
                assert HOSTILE in shown.evaluate("charts[0].tip.textContent")
            else:
                shown.locator("#rows button").nth(1).focus()
                assert HOSTILE in shown.locator("#status").text_content()


def test_nothing_scrolls_sideways_on_a_phone(browser: Any, report: str, tmp_path: Path) -> None:
    pieces = [f"▁piece{index}" for index in range(60)]
    for address in (report, attention_page(tmp_path, pieces, pieces)):
        with opened(browser, address, width=390) as shown:
            open_all(shown)
            assert shown.evaluate("document.documentElement.scrollWidth") <= 390


def test_attention_shows_the_weights_of_the_chosen_head(browser: Any, tmp_path: Path) -> None:
    address = attention_page(tmp_path, ["▁a", "b", "▁c"], ["▁x", "▁y"])
    with opened(browser, address) as shown:
        assert shown.locator("#shown").inner_text() == "Cross-attention, layer 2, head 1"
        shown.locator("#kind").select_option("decoder")
        shown.locator("#layer").select_option("1")
        shown.get_by_label("layer 1, head 3").press("Enter")
        assert shown.locator("#shown").inner_text() == "Decoder self-attention, layer 1, head 3"
        assert shown.locator("#query-name").inner_text() == "translation, as read"
        kinds = ["Cross-attention", "Encoder self-attention", "Decoder self-attention"]
        assert shown.locator("#kind option").all_inner_texts() == kinds
        shown.locator("#kind").select_option("cross")
        assert shown.locator("#shown").inner_text() == "Cross-attention, layer 1, head 1"
        shown.get_by_label("layer 1, head 3").press("Enter")
        shown.locator("#rows button").nth(1).focus()
        weight, best = random_weights(2, 3)[0, 2, 1].max(0)
        assert shown.locator("#status").inner_text() == f"▁y → {['▁a', 'b', '▁c'][best]}: {weight:.3f}"
        with shown.expect_download() as download:
            shown.locator("#save").click()
        svg = download.value.path().read_text()
        assert "Cross-attention, layer 1, head 3" in svg
        assert svg.count('fill-opacity="0.') == 6 + 9  # the weights, and the colour scale without its ends


def test_a_watched_report_follows_the_training(browser: Any, tmp_path: Path) -> None:
    log = [start_record(), train_record(10, 3.0)]
    folder = write_run(tmp_path / "run", log)
    with running("report", folder, "--watch") as server, opened(browser, server.address) as shown:
        assert shown.locator("dd").first.inner_text().startswith("10\n")
        write_run(folder, [*log, train_record(20, 2.0)])
        shown.locator("dd", has_text="20").first.wait_for()
        assert shown.evaluate("charts[0].lines[0].ys") == [3, 2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    protocols = ["--api=libretranslate", "--api=deepl"]
    with serving(saved(eloquent_checkpoint(2), path), "--device=cpu", *protocols) as running:
        yield running


def test_a_person_chooses_another_word_and_the_rest_is_translated_anew(server: Server, browser: Any) -> None:
    sources = some_sentences(20, seed=8)
    texts = [translation["text"] for translation in server.translate(sources)["translations"]]
    source, expected = max(zip(sources, texts, strict=True), key=lambda pair: len(pair[1].split()))
    assert len(expected.split()) > 1
    with opened(browser, server.address, permissions=["clipboard-read"]) as page:
        page.locator("#source").press_sequentially(source)
        page.wait_for_function(f"text => {SHOWN} === text", arg=expected)
        words = page.locator("#translation .word")
        words.nth(0).hover()
        assert page.locator("#backdrop mark").count() == 1
        page.keyboard.press("Tab")  # from the text to "Copy"
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.wait_for_selector("#alternatives button")
        marked = page.locator("#backdrop").inner_html()
        assert marked.count("<mark>") == 1
        page.mouse.move(0, 0)
        assert page.locator("#backdrop").inner_html() == marked
        prefix = f"{expected.split()[0]} "
        offered = server.post("/alternatives", {"source": source, "prefix": prefix}).json["alternatives"]
        assert page.locator("#alternatives button > :first-child").all_inner_texts() == words_of(offered)
        other = next(index for index, a in enumerate(offered) if not expected.startswith(a["prefix"]))
        page.locator("#alternatives button").nth(other).click()
        changed = server.translate(source, prefix=offered[other]["prefix"])["translations"][0]["text"]
        page.wait_for_function(f"text => {SHOWN} === text", arg=changed)
        assert changed.startswith(offered[other]["prefix"])
        assert changed != expected
        assert page.evaluate("document.activeElement.textContent").startswith(offered[other]["word"])
        page.click("#copy")
        assert page.inner_text("#copy") == "Copied"
        assert page.evaluate("navigator.clipboard.readText()") == changed


@pytest.mark.parametrize("source", [
    "    some words  to\n\n  learn \n",
    "{n, plural, one {a few} other {# words}}",
    "{n, plural, one {a few} other {it''s # of a few more words}}",
])  # fmt: skip
def test_the_page_shows_the_text_of_the_answer(server: Server, browser: Any, source: str) -> None:
    expected = server.translate(source)["translations"][0]["text"]
    with opened(browser, server.address) as page:
        page.fill("#source", source)
        page.wait_for_function(f"text => {SHOWN} === text", arg=expected)


def test_a_click_changes_a_part_of_a_translation_without_spaces(browser: Any, tmp_path: Path) -> None:
    model = saved(eloquent_checkpoint(2, codec=chinese_codec()), tmp_path / "model.safetensors")
    source = "some words. to learn"
    with serving(model, "--device=cpu") as server, opened(browser, server.address) as page:
        answer = server.translate(source, alignments=True, n_best=4)
        page.fill("#source", source)
        page.wait_for_function(f"text => {SHOWN} === text", arg=answer["translations"][0]["text"])
        segments = answer["translations"][0]["sentences"][0]["hypotheses"][0]["segments"]
        words = page.locator("#translation .sentence").first.locator(".word")
        assert words.all_text_contents() == [segment.strip() for segment in segments]
        words.nth(2).click()
        page.wait_for_selector("#alternatives button")
        prefix = "".join(segments[:2])
        offered = server.post("/alternatives", {"source": "some words.", "prefix": prefix}).json["alternatives"]
        assert page.locator("#alternatives button > :first-child").all_inner_texts() == words_of(offered)
        page.fill("#alternatives input", "片段")
        page.press("#alternatives input", "Enter")
        expected = prefix + segments[2].replace(segments[2].strip(), "片段")
        page.wait_for_function(f"text => {SHOWN}.startsWith(text)", arg=expected)


def test_the_page_shows_hypotheses_attention_and_errors(server: Server, browser: Any) -> None:
    with opened(browser, server.address) as page:
        page.wait_for_selector("#pair >> text=English → German")
        assert page.inner_text("#legend") == ""
        page.click("#details summary")
        page.fill("#source", "some <b>words</b>\n\nto learn")
        page.wait_for_selector("#n-best li:nth-child(4)")
        assert page.is_visible("#legend .doubtful")
        assert "\n\n" in page.locator("#translation").text_content()
        assert page.locator("#translation b").count() == 0
        page.locator("#n-best button").nth(1).click()
        (sentence,) = server.translate("some <b>words</b>", n_best=2)["translations"][0]["sentences"]
        second = sentence["hypotheses"][1]["text"]
        assert page.locator("#translation .sentence").first.text_content().split() == second.split()
        page.click("#show-attention")
        page.frame_locator("#attention iframe").locator("svg").first.wait_for()
        page.click("#close-attention")
        page.fill("#beam", "99")
        page.locator("#beam").blur()
        page.wait_for_selector("#status.error")
        assert "beam must be at most 16" in page.inner_text("#status")


def test_a_person_chooses_languages_or_lets_them_be_detected(browser: Any, tmp_path: Path) -> None:
    paths = two_models(tmp_path)
    german = "Der alte Lehrer sieht einen Hund.\n\nEr sieht auch den Park."

    def shows(translation: str, source: str) -> None:
        page.wait_for_function(f"text => {SHOWN} === text", arg=translation)
        assert page.inner_text("#source-lang") == source

    with serving(*paths, "--device=cpu") as server, opened(browser, server.address) as page:
        page.wait_for_selector("#languages")
        assert page.locator("#from option").all_inner_texts() == ["English", "German (Deutsch)", "Detect language"]
        page.select_option("#from", label="German (Deutsch)")
        assert page.locator("#to option").all_inner_texts() == ["French (français)"]
        page.select_option("#from", label="Detect language")
        page.fill("#source", german)
        pair = {"source_lang": "auto", "target_lang": "fr"}
        shows(server.translate(german, **pair)["translations"][0]["text"], "German (detected)")
        page.select_option("#to", label="German (Deutsch)")
        shows(german, "German (detected)")
        page.select_option("#to", label="French (français)")
        page.select_option("#from", label="English")
        pair = {"source_lang": "en", "target_lang": "fr"}
        page.fill("#source", "some words. to learn")  # through German, so that no word can be replaced
        shows(server.translate("some words. to learn", **pair)["translations"][0]["text"], "English")
        assert page.locator("#translation .word").count() == 0
        assert page.locator("#n-best li").count() == 4 and page.evaluate("$('show-attention').hidden")


def test_the_page_begins_with_a_direction_of_the_last_training(browser: Any, tmp_path: Path) -> None:
    codec = multilingual_codec("both_sides")
    checkpoint = replace(small_checkpoint(0, codec=codec), provenance={"directions": ["fr de"]})
    path = saved(checkpoint, tmp_path / "tuned.safetensors")
    with serving(path, "--device=cpu") as server, opened(browser, server.address) as page:
        page.wait_for_selector("#languages")
        assert page.locator("#from option:checked").inner_text() == "French (français)"
        assert page.locator("#to option:checked").inner_text() == "German (Deutsch)"


def test_a_person_searches_among_many_languages(browser: Any, tmp_path: Path) -> None:
    languages = (
        "eng_Latn", "deu_Latn", "fra_Latn", "arb_Arab", "arb_Latn", "zho_Hans", "zho_Hant", "fij_Latn", "jpn_Jpan",
        "lao_Laoo", "fon_Latn", "ewe_Latn", "twi_Latn", "tha_Thai",
    )  # fmt: skip
    codec = multilingual_codec("both_sides", languages=languages)
    path = saved(eloquent_checkpoint(3, codec=codec), tmp_path / "model.safetensors")

    def shows(source: str, target: str) -> None:
        pair = {"source_lang": source, "target_lang": target}
        text = server.translate("some words. to learn", n_best=4, **pair)["translations"][0]["text"]
        page.wait_for_function(f"text => {SHOWN} === text", arg=text)
        names = {each["code"]: each["name"] for each in server.get("/models").json["languages"]}
        assert page.inner_text("#source-lang") == names[source]
        assert page.inner_text("#target-lang") == names[target]

    with serving(path, "--device=cpu", "--precision=fp32") as server, opened(browser, server.address) as page:
        page.wait_for_selector("#find-from")
        assert page.locator("#from option:checked").inner_text() == "Detect language"
        assert page.locator("#to option:checked").inner_text() == "English"
        page.click("#undetected summary")
        cannot = page.inner_text("#undetected p")
        assert "Fijian" in cannot and "Arabic (Latin)" in cannot and "German" not in cannot
        page.fill("#source", "some words. to learn")
        page.fill("#find-from", "deut")
        assert page.locator("#from option").all_inner_texts() == ["German (Deutsch)"]
        shows("de", "en")
        page.press("#find-from", "Enter")
        assert page.locator("#from option").count() == 15  # with the detection
        page.fill("#find-to", "fij")
        shows("de", "fj")
        page.press("#find-to", "Enter")
        page.locator("#translation .word").first.click()
        page.wait_for_selector("#alternatives button")
        page.keyboard.press("Escape")
        open_all(page)
        page.click("#show-attention")
        page.frame_locator("#attention iframe").locator("svg").first.wait_for()
        page.click("#close-attention")
        page.fill("#find-to", "no such language")
        assert page.locator("#to option:checked").inner_text() == "Fijian"
        page.press("#find-to", "Enter")
        page.reload()
        page.wait_for_selector("#find-from")
        assert page.locator("#from option:checked").inner_text() == "German (Deutsch)"
        assert page.locator("#to option").first.inner_text() == "Fijian"
        page.fill("#source", "some words. to learn")
        page.click("#swap")
        page.fill("#source", "some words. to learn")
        shows("fj", "de")
        page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"some words. to learn"})
        page.wait_for_selector("text=Download a.deu_Latn.txt")


def test_a_page_says_why_text_is_doubtful_and_that_it_is_in_another_language(browser: Any, tmp_path: Path) -> None:
    path = saved(eloquent_checkpoint(2), tmp_path / "model.safetensors")
    with serving(path, "--device=cpu", "--no-protect") as server, opened(browser, server.address) as page:
        page.fill("#source", "some words of 1984")
        page.wait_for_selector("text=Check the marked sentences first: numbers are missing in 1.")
        assert page.is_visible("#translation .in-doubt")
        for text, said in (
            ("Der Mann fährt mit dem Fahrrad auf dem Gehweg.", "This text seems to be German, not English."),
            ("Un homme fait du vélo sur le trottoir de la rue.", "This text does not seem to be English."),
        ):
            page.fill("#source", text)
            page.wait_for_selector(f"text={said}")


def test_a_person_chooses_a_glossary(browser: Any, tmp_path: Path) -> None:
    path = saved(eloquent_checkpoint(2), tmp_path / "model.safetensors")
    (tmp_path / "terms.tsv").write_text("words\tpieces\n")
    glossary = f"--glossary=office={tmp_path / 'terms.tsv'}"
    with serving(path, "--device=cpu", glossary) as server, opened(browser, server.address) as page:
        page.wait_for_selector("#glossary")  # the only one is chosen
        page.select_option("#glossary", label="none")
        page.fill("#source", "some words")
        plain_translation = server.translate("some words")["translations"][0]["text"]
        page.wait_for_function(f"text => {SHOWN} === text", arg=plain_translation)
        page.reload()
        page.fill("#source", "some words")
        translation = server.translate("some words", glossary="office")["translations"][0]["text"]
        assert "pieces" in translation and translation != plain_translation
        # Of several translations with the terms, the page shows the best.
        best = server.translate("some words", glossary="office", n_best=4)["translations"][0]["text"]
        page.wait_for_function(f"text => {SHOWN} === text", arg=best)
        titles = page.eval_on_selector_all("#translation .term", "words => words.map(word => word.title)")
        assert titles and set(titles) == {"Term of the glossary for “words”"}
        assert page.is_visible("#legend .term")
        page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"some words"})
        with page.expect_download() as download:
            page.click("text=Download a.de.txt")
        assert download.value.path().read_text() == translation
        assert "1 different sentence, terms of the glossary used once." in page.inner_text("#file-status")


def test_a_page_asks_for_the_token_and_suggests_sentences_of_the_validation(browser: Any, tmp_path: Path) -> None:
    sample = {"source": "some words to learn from pieces", "reference": "b", "output": "c"}
    folder = write_run(tmp_path / "run", [start_record(), valid_record(1, 1.0, 2.0) | {"samples": [sample]}])
    path = saved(eloquent_checkpoint(2), folder / "model.safetensors")
    (tmp_path / "token").write_text("secret")
    options = "--device=cpu", f"--token-file={tmp_path / 'token'}"
    with serving(path, *options, token="secret") as server:
        page = browser.new_page()  # its answers have the status 401
        page.goto(server.address)
        page.wait_for_selector("#token:focus")
        assert page.locator("textarea:visible, select:visible").count() == 0
        for token in ("wrong", "“secret”", "secret"):
            page.fill("#token", token)
            page.keyboard.press("Enter")
            page.wait_for_selector("text=This token is not the one" if token != "secret" else "#source")
        page.click("#examples button")
        translation = server.translate(sample["source"])["translations"][0]["text"]
        page.wait_for_function(f"text => {SHOWN} === text", arg=translation)
        assert page.is_hidden("#examples") and page.input_value("#source") == sample["source"]
        page.close()


def test_a_person_sees_what_a_memory_has(browser: Any, tmp_path: Path) -> None:
    path = saved(eloquent_checkpoint(2), tmp_path / "model.safetensors")
    (tmp_path / "pairs.tsv").write_text("some words\tWorte\nlearn 12 words from pieces\tlerne <i>12</i> Worte\n")
    memory = f"--memory=office={tmp_path / 'pairs.tsv'}"
    with serving(path, "--device=cpu", memory) as server, opened(browser, server.address) as page:
        page.fill("#source", "some words\nlearn few words from pieces")
        page.select_option("#memory", label="office")
        page.wait_for_selector(".from-memory >> text=Worte")
        assert page.locator("#n-best").text_content() == "Worte from the memory"
        assert "Sentence from the memory" in page.inner_text("#legend")
        page.locator("#translation .word").first.click()
        page.wait_for_selector("#matches del")
        page.keyboard.press("Escape")
        parts = [page.locator(f"#matches {name}").inner_text() for name in ("del", "ins", "li")]
        assert parts == ["12", "few", "88 % learn 12few words from pieces\nlerne <i>12</i> Worte"]
        page.focus(".from-memory")
        page.keyboard.press("Enter")
        assert page.locator("#matches").inner_text() == "100 % some words\nWorte"


def test_a_page_says_that_a_memory_is_of_another_direction(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("some words\tWorte\n")
    memory = f"--memory=office:en:de={tmp_path / 'pairs.tsv'}"
    with serving(*two_models(tmp_path), "--device=cpu", memory) as server, opened(browser, server.address) as page:
        page.select_option("#from", "en")
        page.fill("#source", "some words")
        page.select_option("#memory", label="office")
        page.wait_for_selector(".from-memory >> text=Worte")
        page.select_option("#from", "de")
        page.select_option("#to", "fr")
        page.wait_for_selector("#status.error >> text=the memory office is of en-de, not from de into fr")
        assert page.locator("#translation .from-memory").count() == 0
        page.select_option("#memory", label="none")
        page.wait_for_selector("#n-best li", state="attached")


@pytest.mark.parametrize("answer, said", [
    ("Promise.reject(new TypeError())", "The server does not answer."),
    ("Promise.resolve(new Response('{\"error\": \"busy\"}', { status: 503 }))", "busy"),
    ("Promise.resolve(new Response('<html>', { status: 502 }))", "The server answered with status 502."),
    ("Promise.resolve(new Response('{\"error\": \"too long\"}', { status: 413 }))", "too long"),
])  # fmt: skip
def test_a_page_shows_no_translation_of_an_earlier_text(server: Server, browser: Any, answer: str, said: str) -> None:
    with opened(browser, server.address) as page:
        page.fill("#source", "some words")
        page.wait_for_selector("#n-best li", state="attached")
        page.evaluate(f"window.given = fetch; window.fetch = () => {answer}; 0")
        page.fill("#source", "some words to learn")
        page.wait_for_selector(f"#status.error >> text={said}")
        assert page.evaluate(SHOWN) == "" and page.evaluate("$('hypotheses').hidden")
        page.evaluate("window.fetch = given; 0")
        page.fill("#source", "to learn")
        expected = server.translate("to learn")["translations"][0]["text"]
        page.wait_for_function(f"text => {SHOWN} === text", arg=expected)


def test_a_person_translates_a_document(server: Server, browser: Any) -> None:
    lines = some_sentences(1000, seed=4)  # take longer than the page waits between two looks at the progress
    text = "\n".join(lines)
    file = {"name": "a b.txt", "mimeType": "text/plain", "buffer": text.encode()}
    with opened(browser, server.address) as page:
        page.wait_for_selector("#drop")  # the page shows it when it knows the models
        page.set_input_files("#file", file)
        page.wait_for_selector("text=/ of [0-9]{3} sentences/")
        assert 800 < page.evaluate("document.querySelector('progress').max") < 1000
        with page.expect_download() as download:
            page.click("text=Download a b.de.txt")
        assert download.value.suggested_filename == "a b.de.txt"
        chunks = (lines[first : first + 250] for first in range(0, 1000, 250))
        expected = [translation["text"] for chunk in chunks for translation in server.translate(chunk)["translations"]]
        assert download.value.path().read_text().split("\n") == expected
        assert not page.is_visible("#progress")
        page.set_input_files("#file", {**file, "name": "<b>.srt"})
        page.wait_for_selector("#file-status.error")
        assert page.inner_text("#file-status").startswith("<b>.srt")
        dropped = page.evaluate_handle(
            """text => {
            const dropped = new DataTransfer();
            dropped.items.add(new File([text], "c.txt"));
            return dropped;
        }""",
            "\n".join(some_sentences(3000, seed=5)),
        )
        page.dispatch_event("#drop", "drop", {"dataTransfer": dropped})
        with page.expect_response(lambda answer: answer.request.method == "DELETE") as deleted:
            page.wait_for_selector("text=/ of [0-9]{4} sentences/")
            page.click("#stop")
        assert deleted.value.status == 204 and server.get(deleted.value.url.partition("/documents")[2]).status == 404
        page.set_input_files("#file", {**file, "buffer": b"a" * (10 * 2**20 + 1)})
        page.wait_for_selector("text=a b.txt has more than 10 MiB.")


def test_the_description_of_the_api_needs_no_network(server: Server, browser: Any) -> None:
    with opened(browser, server.address) as page:
        page.goto(server.address + "docs")
        page.wait_for_selector("text=POST /translate")
        assert page.locator("code", has_text="max_length_offset").count() == 1
        assert "name" in page.locator("section", has_text="POST /documents").locator("code").all_inner_texts()
        assert "`" not in page.inner_text("body")
        for body, field in (("LibreTranslateBody", "alternatives"), ("DeepLBody", "split_sentences")):
            request = page.locator("details", has_text=f"Request: {body}")
            assert request.locator("code", has_text=field).count() == 1


# A stand-in for transformers.js, in which a character is a piece and a translation is in capitals.
ENGINE = """
export const env = { backends: { onnx: { wasm: {} } } };
export async function pipeline() {
  const encode = text => [...text, "</s>"];
  const translate = async (text, { max_new_tokens }) => {
    const pieces = encode(text).length;
    if (text !== "." && max_new_tokens !== pieces + 50) throw new Error(`${pieces} pieces become ${max_new_tokens}`);
    return [{ translation_text: pieces > 512 ? "too long" : text.toUpperCase() }];
  };
  const config = await (await fetch("model/config.json")).json();
  return Object.assign(translate, { model: { config }, tokenizer: { encode } });
}
"""


def test_an_exported_page_translates_long_text_from_and_to_languages_with_odd_codes(
    browser: Any, tmp_path: Path
) -> None:
    text = replace(TEXT_CONFIG, source_lang="en_GB", target_lang="ger man")
    codec = TextCodec(text, small_codec().source, small_codec().target)
    folder = tmp_path / "page"
    run("export", "web", saved(small_checkpoint(0, codec=codec), tmp_path / "m"), "--output", folder)
    (folder / "engine").mkdir()
    (folder / "engine" / "transformers.web.min.js").write_text(ENGINE)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder))
    Thread(target=server.serve_forever, daemon=True).start()
    with opened(browser, f"http://127.0.0.1:{server.server_port}/") as shown:
        shown.locator("#status:text('Ready')").wait_for()
        assert shown.title() == "British English to ger man"
        for typed in ("A dog.  A cat.\n\n  <b>Two</b>", "word " * 500, "x" * 2000):
            shown.fill("#source", typed)
            shown.locator("#status:text('Translated')").wait_for()
            assert shown.locator("#translation").text_content() == typed.upper().replace("B>", "b>")  # tags stay
            shown.fill("#source", "")
            shown.locator("#status:text('Ready')").wait_for()
        quota = {"origin": f"http://127.0.0.1:{server.server_port}", "quotaSize": 1000}
        shown.context.new_cdp_session(shown).send("Storage.overrideQuotaForOrigin", quota)
        shown.reload()  # offline.js has no space for the files
        shown.locator("#status:text('Ready')").wait_for()
    server.shutdown()
    server.server_close()
    shown = browser.new_page()
    shown.goto((folder / "index.html").as_uri())
    assert "Browsers do not load a model from files" in shown.inner_text("#status")


@pytest.mark.parametrize("width", [1280, 390])
def test_a_person_corrects_a_translation_and_takes_it_back(browser: Any, tmp_path: Path, width: int) -> None:
    path, file = saved(eloquent_checkpoint(2), tmp_path / "model.safetensors"), tmp_path / "kept.jsonl"
    source = "some words to learn\nand a few more"
    with (
        serving(path, "--device=cpu", f"--corrections={file}") as server,
        opened(browser, server.address, width) as page,
    ):
        translation = server.translate(source, n_best=4)["translations"][0]["text"]
        first, second = translation.split("\n")

        def shows(text: str) -> None:
            page.wait_for_function(f"text => {SHOWN} === text", arg=text)

        page.on("dialog", lambda dialog: dialog.accept())  # which asks before a correction is taken back
        page.fill("#source", source)
        shows(translation)
        page.locator("#translation .edit").nth(1).press("Enter")
        assert page.evaluate("document.activeElement.value") == second
        page.keyboard.type("left")
        page.keyboard.press("Escape")
        shows(translation)
        assert page.evaluate("document.activeElement.className") == "sign edit"
        page.keyboard.press("Enter")
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(f"{HOSTILE}\n")
        page.keyboard.press("Control+Enter")
        shows(f"{first}\n{HOSTILE}")
        assert page.evaluate("document.activeElement.className") == "sign edit"
        (record,) = server.get("/corrections").json["corrections"]
        assert record["machine_translation"] == second and record["target"] == HOSTILE
        page.locator("#translation .edit").nth(0).click()
        page.fill(".correction textarea", " ")
        page.click("text=Keep")
        page.wait_for_selector("#status.error")
        assert "target must be a sentence on one line" in page.inner_text("#status")
        page.click("text=Cancel")
        for index in (0, 0):  # a sentence that is being corrected has no button
            page.locator("#translation .edit").nth(index).click()
        page.locator(".correction textarea").nth(1).fill("typed")
        page.locator(".correction textarea").nth(0).fill("die Wörter")
        page.locator("text=Keep").nth(0).click()
        page.wait_for_selector("#translation .kept")
        assert page.evaluate("document.querySelector('.correction textarea').value") == "typed"
        page.click("text=Cancel")
        shows(f"die Wörter\n{HOSTILE}")
        # What is typed stays while the text changes.
        page.locator("#translation .edit").nth(1).click()
        page.fill(".correction textarea", "typed again")
        page.fill("#source", f"{source}\na few")
        page.wait_for_function("() => document.querySelectorAll('#translation .edit').length === 2")
        assert page.evaluate("document.querySelector('.correction textarea').value") == "typed again"
        page.fill("#source", f"{source}!\na few")
        page.wait_for_function("() => document.querySelectorAll('#translation .edit').length === 2")
        assert page.evaluate("document.querySelector('.correction textarea').value") == "typed again"
        page.fill("#source", "more\nof these\npieces")  # no form of another text
        page.wait_for_function("() => document.querySelectorAll('#translation .edit').length === 3")
        page.fill("#source", source)
        shows(f"die Wörter\n{HOSTILE}")
        assert page.locator("#kept .kept").all_text_contents() == ["die Wörter", HOSTILE]
        assert page.locator("#translation .kept").count() == 2
        assert page.locator("#kept b, #translation b").count() == 0 and page.title() == "nmt"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        with page.expect_download() as download:
            page.click("text=Download all as TMX")
        assert download.value.path().read_bytes() == server.get("/corrections.tmx").body
        page.locator("#translation .undo").nth(1).click()
        shows(f"die Wörter\n{second}")
        page.reload()
        page.fill("#source", source)
        shows(f"die Wörter\n{second}")
        page.click("#kept button")
        page.wait_for_selector("#kept:empty", state="attached")
        page.wait_for_selector("text=The correction is taken back.")
        shows(translation)
    assert len(file.read_text().split("\n")) == 5


DOCUMENTS = {"fon": ["One house.", "Two big trees.", "Three."], "mos": ["One house.", "Two big, big trees.", "Three!"]}


def test_decisions_about_pairs_are_saved(tmp_path: Path, browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for lang, lines in DOCUMENTS.items():
        (tmp_path / f"x.{lang}.txt").write_text("\n".join(lines))
    langs = ["--source-lang=fon", "--target-lang=mos"]
    run("align", "x.fon.txt", "x.mos.txt", *langs, "--output=x.tsv", "--page=x.html")
    with opened(browser, (tmp_path / "x.html").as_uri()) as page:
        page.select_option("#order", "text")

        def decisions() -> Any:
            with page.expect_download() as download:
                page.click("#save")
            return [bead[:4] for bead in json.loads(Path(download.value.path()).read_text())[0][2]]

        single = [[i, i + 1, i, i + 1] for i in range(3)]
        assert decisions() == single
        page.locator("button", has_text="Join").first.click()
        assert decisions() == [[0, 2, 0, 2], single[2]]
        assert page.locator(".pair").first.inner_text().startswith("1.00")
        page.locator("button", has_text="Split").first.click()
        assert decisions() == single
        page.locator("button", has_text="Drop").first.click()
        assert decisions() == [[0, 1, 0, 0], [1, 1, 0, 1], *single[1:]]
        page.locator("button", has_text="Join").first.click()
        assert decisions() == single
        page.locator("button", has_text="Drop").nth(1).click()
        with page.expect_download() as download:
            page.click("#save")
        download.value.save_as(tmp_path / "decisions.json")
    run("align", "x.fon.txt", "x.mos.txt", *langs, "--output=decided.tsv", "--decisions=decisions.json")
    rows = [line.split("\t") for line in (tmp_path / "decided.tsv").read_text().splitlines()[1:]]
    assert [row[3:] for row in rows] == [["1", "1"], ["3", "3"]]


def test_the_documentation_can_be_read_and_searched_from_a_folder(browser: Any, tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "recipes" / "documentation.py"), str(tmp_path)], check=True)
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url))
    site = tmp_path / "site"
    for name in ("index", "architecture", "comparison", "serving", "commands/train"):
        page.goto((site / f"{name}.html").as_uri())
        for place in page.locator(".md-content pre > code, .md-content .md-typeset__table").all():
            assert place.evaluate("place => place.scrollWidth <= place.clientWidth"), (name, place.text_content())
    for word in ("doubtful", "Excel"):
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("Control+k")
        page.get_by_placeholder("Search").fill(word)
        page.locator("mark", has_text=word).first.wait_for()
    assert all(address.startswith("file:") for address in loaded)
    page.close()
