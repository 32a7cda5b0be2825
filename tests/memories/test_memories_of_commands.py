"""What a memory has is not translated by the model: `nmt generate`, `nmt translate-file` and `nmt serve`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import polib
import pytest
from checkpoints import eloquent_checkpoint, generated, multilingual_codec, saved, some_sentences, two_models
from commands import failed, run
from lxml import etree
from servers import Server, serving

OPTIONS = ["--precision=fp32", "--max-length-offset=12"]
PAIRS = [("some words", "einige Wörter"), ("learn 12 words from pieces", "lerne 12 Wörter aus Teilen"), ("12", "zwölf")]
LINES = ["some  words", "learn 7 words from pieces", "learn seven words from pieces", "to learn", "", "12", "13"]


def table(path: Path, *pairs: tuple[str, str]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs or PAIRS), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("memory") / "pairs.tsv")


# nmt generate


def test_lines_come_from_the_memory(model: Path, memory: Path) -> None:
    plain = generated(model, LINES, *OPTIONS)
    lines = generated(model, LINES, *OPTIONS, "--memory", memory)
    for i, text in {0: "einige Wörter", 1: "lerne 7 Wörter aus Teilen", 5: "zwölf"}.items():
        assert lines[i]["hypotheses"] == [{"text": text, "origin": "memory"}]
    for i in (2, 3, 4, 6):
        assert lines[i]["hypotheses"] == plain[i]["hypotheses"]
    assert "memory" not in lines[3] and "memory" not in plain[0]
    (match,) = lines[2]["memory"]
    assert match == {
        "source": "learn 12 words from pieces", "target": "lerne 12 Wörter aus Teilen", "score": 0.82,
        "difference": [["=", "learn "], ["-", "12"], ["+", "seven"], ["=", " words from pieces"]],
    }  # fmt: skip


def test_text_and_the_count_at_the_end(model: Path, memory: Path, tmp_path: Path) -> None:
    """Lines in shards and in workers are the same as in one process."""
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES))
    command = ["generate", model, *OPTIONS, "--device=cpu", "--memory", memory]
    done = run(*command, stdin=(tmp_path / "in").read_bytes())
    assert done.stderr.splitlines()[-1] == "3 of 7 lines came from the memory"
    assert done.stdout.decode().split("\n")[:2] == ["einige Wörter", "lerne 7 Wörter aus Teilen"]
    run(*command, "--input", tmp_path / "in", "--output", tmp_path / "out", "--shard-lines=3", "--workers=2")
    assert (tmp_path / "out").read_bytes() == done.stdout


def test_alignments_are_those_of_the_model(model: Path, memory: Path) -> None:
    first, second, _, fourth, *_ = run(
        "generate", model, *OPTIONS, "--device=cpu", "--memory", memory, "--alignments", stdin="\n".join(LINES).encode()
    ).stdout.decode().splitlines()  # fmt: skip
    assert (first, second) == ("einige Wörter ||| ", "lerne 7 Wörter aus Teilen ||| ")
    assert re.search(r" \|\|\| \d+-\d+", fourth)


@pytest.mark.parametrize("given", [{"prefix": "so"}, {"constraints": ["kk"]}])
def test_prefix_and_constraints_need_the_model(model: Path, memory: Path, given: dict[str, object]) -> None:
    lines = [json.dumps({"source": "some words", **given})]
    (plain,), (line,) = (
        generated(model, lines, *OPTIONS, "--input-format=jsonl", *flags) for flags in ([], ["--memory", memory])
    )
    assert line["hypotheses"] == plain["hypotheses"]
    assert [(match["score"], match["target"]) for match in line["memory"]] == [(1.0, "einige Wörter")]


def test_a_disagreement_with_the_glossary_is_marked(model: Path, memory: Path, tmp_path: Path) -> None:
    (tmp_path / "terms").write_text("words\tVokabeln\npieces\tTeile\tTeilen\n")
    flags = ["--memory", memory, "--glossary", tmp_path / "terms"]
    first, second = generated(model, ["some words", "learn 12 words from pieces"], *OPTIONS, *flags)
    assert first["hypotheses"] == [{"text": "einige Wörter", "origin": "memory", "unmet": True}]
    assert second["hypotheses"][0]["unmet"]
    (tmp_path / "terms").write_text("words\tVokabeln\tWörter\n")
    (first,) = generated(model, ["some words"], *OPTIONS, *flags)
    assert first["hypotheses"] == [{"text": "einige Wörter", "origin": "memory"}]


def test_of_several_memories_the_first_counts(model: Path, memory: Path, tmp_path: Path) -> None:
    second = table(tmp_path / "b.tsv", ("some words", "Worte"), ("to learn", "lernen"))
    lines = generated(model, ["some words", "to learn"], *OPTIONS, "--memory", memory, "--memory", second)
    assert [line["hypotheses"][0]["text"] for line in lines] == ["einige Wörter", "lernen"]


def test_a_memory_of_two_files_of_text(model: Path, tmp_path: Path) -> None:
    (tmp_path / "old.en").write_text("\nsome words\nto learn\n")
    (tmp_path / "old.de").write_text("nichts\nWorte\n\n")
    lines = generated(model, ["", "some words", "to learn"], *OPTIONS, "--memory", tmp_path / "old")
    assert [line["hypotheses"][0].get("origin") for line in lines] == [None, "memory", None]


def test_a_job_is_not_resumed_with_another_memory(model: Path, memory: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("to learn\nsome words\n")
    files = ["--input", tmp_path / "in", "--output", tmp_path / "out", "--shard-lines=1", "--shard=1/2"]
    command = ["generate", model, *OPTIONS, "--device=cpu", *files]
    run(*command, "--memory", memory)
    other = table(tmp_path / "other.tsv", ("some words", "Worte"))
    assert re.search("in which --memory was SHA-256 .* and is now SHA-256", failed(*command, "--memory", other))
    assert "in which --memory was given" in failed(*command)


def test_html_and_sentences_of_a_paragraph(model: Path, memory: Path) -> None:
    """The model translates a sentence with elements, because the memory does not say where they go."""
    source = '<p title="some words">Some <b>words</b></p> <p><i>some words</i></p> <p>some <b>words</b></p>'
    texts = [
        run("generate", model, *OPTIONS, "--device=cpu", "--html", *flags, stdin=source.encode()).stdout.decode()
        for flags in ([], ["--memory", memory])
    ]
    plain, text = (re.findall("<p.*?</p>", each) for each in texts)
    assert text[1] == "<p><i>einige Wörter</i></p>"
    assert [text[0], text[2]] == [plain[0], plain[2]]
    command = ["generate", model, *OPTIONS, "--device=cpu", "--split-sentences", "--memory", memory]
    assert run(*command, stdin=b"Few. some words. some words").stdout.decode().endswith(" einige Wörter\n")


def test_a_paragraph_may_be_in_the_memory_as_a_whole(model: Path, tmp_path: Path) -> None:
    memory = table(tmp_path / "m.tsv", ("Few. some words.", "Wenige Wörter."), ("Few.", "Wenige."))
    command = ["generate", model, *OPTIONS, "--device=cpu", "--memory", memory]
    lines = run(*command, "--split-sentences", stdin=b"Few. some words.\nFew. Few.\n").stdout.decode()
    assert lines == "Wenige Wörter.\nWenige. Wenige.\n"
    html = run(
        *command, "--html", "--split-sentences", stdin=b"<p>Few. some words.</p><p>Few. <b>Few.</b></p>"
    ).stdout.decode()
    assert html == "<p>Wenige Wörter.</p><p>Wenige. <b>Wenige.</b></p>\n"
    (tmp_path / "page.html").write_bytes(b"<p>Few. some words.</p><p>Few. Few.</p>")
    run("translate-file", tmp_path / "page.html", "--model", *command[1:], "--output", tmp_path / "out.html")
    assert (tmp_path / "out.html").read_text() == "<p>Wenige W&#246;rter.</p><p>Wenige. Wenige.</p>"


@pytest.mark.parametrize("name", ["text", "keys.npy", "postings.npy"])
def test_a_damaged_index_is_named(
    name: str, model: Path, memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = ["generate", model, "--device=cpu", "--memory", memory]
    run(*command, stdin=b"some words\n")
    (file,) = tmp_path.rglob(name)
    file.write_bytes(b"")
    assert re.search("the index .* is damaged .*; delete the folder", failed(*command, stdin=b"some words\n"))
    file.unlink()
    assert re.search("the index .* is damaged .*; delete the folder", failed(*command, stdin=b"some words\n"))


def test_a_memory_may_translate_words_that_stay(model: Path, tmp_path: Path) -> None:
    pair = "see https://a.org/en for {x} now", "siehe https://a.org/de mit {x}"
    memory = table(tmp_path / "m.tsv", pair)
    flags = [*OPTIONS, "--device=cpu", "--memory", memory]
    source, target = (f"<p>{text}</p>\n" for text in pair)
    assert run("generate", model, *flags, "--html", stdin=source.encode()).stdout.decode() == target
    (tmp_path / "page.html").write_text(source)
    run("translate-file", tmp_path / "page.html", "--model", model, *flags, "--output", tmp_path / "translated.html")
    assert (tmp_path / "translated.html").read_text() == target


def test_a_memory_has_one_direction(memory: Path, tmp_path: Path) -> None:
    model = saved(eloquent_checkpoint(1, codec=multilingual_codec("both_sides")), tmp_path / "model")
    lines = [json.dumps({"source": "some words", "target_lang": lang}) for lang in ("de", "fr")]
    flags = ["--source-lang=en", "--target-lang=de", "--memory", memory]
    first, second = generated(model, lines, *OPTIONS, "--input-format=jsonl", *flags)
    assert first["hypotheses"] == [{"text": "einige Wörter", "origin": "memory"}]
    assert "log_prob" in second["hypotheses"][0] and "memory" not in second


@pytest.mark.parametrize("asked, expected", [
    ("de-AT", "Jänner"), ("de_DE", "Januar"), ("deu", "Januar"), ("de-CH", "Januar"), ("de", "Januar"),
])  # fmt: skip
def test_of_the_variants_in_a_memory_the_asked_one_is_used(tmp_path: Path, asked: str, expected: str) -> None:
    model = saved(eloquent_checkpoint(1, codec=multilingual_codec("both_sides")), tmp_path / "model")
    texts = [("de-DE", "Januar"), ("de-AT", "Jänner"), ("en", "January")]
    variants = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in texts)
    (tmp_path / "m.tmx").write_text(f"<tmx><body><tu>{variants}</tu></body></tmx>")
    flags = ["--source-lang=en-US", f"--target-lang={asked}", "--memory", tmp_path / "m.tmx"]
    (line,) = generated(model, ["January"], *OPTIONS, *flags)
    assert line["hypotheses"] == [{"text": expected, "origin": "memory"}]


def test_a_swapped_memory_is_said(model: Path, tmp_path: Path) -> None:
    rows = [("der und die sind nicht da", f"the {i} and it is not that") for i in range(100)]
    command = ["generate", model, *OPTIONS, "--device=cpu", "--memory", table(tmp_path / "m.tsv", *rows)]
    assert "m.tsv look like de, and their translations like en" in run(*command, stdin=b"some words\n").stderr


def test_a_memory_needs_the_language_of_the_source(memory: Path, tmp_path: Path) -> None:
    model = saved(eloquent_checkpoint(1, codec=multilingual_codec("target_on_source")), tmp_path / "model")
    assert "--memory needs --source-lang" in failed("generate", model, "--target-lang=de", "--memory", memory)


@pytest.mark.parametrize("content, said", [
    ("a\n", "{} has no pairs of en and de (left out: 1 "),
    (None, "{}"),
])  # fmt: skip
def test_a_wrong_file_is_named(model: Path, tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "memory.tsv"
    if content is not None:
        path.write_text(content)
    for command in (["generate", model], ["translate-file", path, "--model", model], ["serve", model, "--port=0"]):
        flag = f"name={path}" if command[0] == "serve" else str(path)
        assert said.format(path) in failed(*command, "--device=cpu", "--memory", flag, stdin=b"a\n")
    other = table(tmp_path / "memory.odt")
    assert "memory.odt is not a corpus file that can be read; give a file such as" in failed(
        "generate", model, "--memory", other
    )
    (tmp_path / "in").write_text("a\n")
    same = ["--input", tmp_path / "in", "--output", table(path), "--memory", path]
    assert "is the same file as the input" in failed("generate", model, *same)
    for side in ("both.en", "both.de"):
        (tmp_path / side).write_text("a\n")
    same = ["--input", tmp_path / "in", "--output", tmp_path / "both.de", "--memory", tmp_path / "both"]
    assert "both.de is the same file as the input" in failed("generate", model, *same)


# nmt translate-file


def test_documents_get_what_the_memory_has(model: Path, memory: Path, tmp_path: Path) -> None:
    (tmp_path / "a.xlf").write_text(
        '<xliff version="1.2"><file source-language="en" target-language="de"><body>\n'
        '<trans-unit id="1">\n  <source>some words</source>\n</trans-unit>\n'
        '<trans-unit id="2">\n  <source>learn seven words from pieces</source>\n</trans-unit>\n'
        '<trans-unit id="3">\n  <source>some <g id="1">words</g></source>\n</trans-unit>\n'
        "</body></file></xliff>"
    )
    (tmp_path / "b.po").write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "some words"\nmsgstr ""\n\n'
        '#. note\n#, c-format\nmsgctxt "x"\nmsgid "learn seven words from pieces"\nmsgstr ""\n\n'
        'msgid "learn eight words from pieces"\nmsgstr ""\n'
    )
    documents = [tmp_path / "a.xlf", tmp_path / "b.po", "--output", tmp_path / "out"]
    done = run("translate-file", *documents, "--model", model, "--device=cpu", *OPTIONS, "--memory", memory)
    rows = [line.split() for line in done.stderr.splitlines()[-3:]]
    assert rows == [
        ["file", "translation", "sentences", "from", "memory", "left", "as", "they", "are"],
        [str(documents[0]), str(tmp_path / "out" / "a.xlf"), "3", "1"],
        [str(documents[1]), str(tmp_path / "out" / "b.po"), "3", "1"],
    ]  # fmt: skip
    units = etree.parse(tmp_path / "out" / "a.xlf").getroot().findall(".//{*}trans-unit")
    assert [[child.tag for child in unit] for unit in units] == [["source", "target", "alt-trans"]] * 3
    assert units[0][1].text == "einige Wörter" and "".join(units[2][1].itertext()) != "einige Wörter"
    assert [(unit[2].get("match-quality"), unit[2].get("origin")) for unit in units] == [
        ("100%", "memory"), ("82%", "memory"), ("100%", "memory"),
    ]  # fmt: skip
    assert [side.text for side in units[1][2]] == list(PAIRS[1])
    entries = list(polib.pofile(str(tmp_path / "out" / "b.po")))
    assert entries[0].msgstr == "einige Wörter" and not entries[0].previous_msgid
    for entry in entries[1:]:
        assert (entry.previous_msgid, entry.tcomment) == (PAIRS[1][0], f"82 %: {PAIRS[1][1]}")
        assert "fuzzy" in entry.flags
    assert entries[1].msgctxt == "x"


# nmt serve


@pytest.fixture(scope="module")
def server(model: Path, memory: Path) -> Iterator[Server]:
    flags = ["--precision=fp32", "--device=cpu", "--api=deepl", f"--memory=a={memory}", f"--memory=b:en:de={memory}"]
    with serving(model, *flags) as running:
        yield running


def test_a_request_names_a_memory(server: Server) -> None:
    assert server.get("/models").json["memories"] == ["a", "b"]
    source = "some words\nlearn seven words from pieces\nto learn"
    (plain,) = server.translate(source)["translations"]
    (text,) = server.translate(source, memory="a", alignments=True)["translations"]
    first, second, third = text["sentences"]
    assert first["hypotheses"] == [{"text": "einige Wörter", "origin": "memory"}]
    assert text["text"].split("\n") == ["einige Wörter", *plain["text"].split("\n")[1:]]
    assert [(m["source"], m["target"], m["score"]) for m in second["memory"]] == [(*PAIRS[1], 0.82)]
    assert second["memory"][0]["difference"][1:3] == [["-", "12"], ["+", "seven"]]
    assert "memory" not in third and "memory" not in plain["sentences"][0]
    assert server.translate("some words", memory="b", prefix="so")["translations"][0]["text"].startswith("so")
    assert "there is no memory 'c'; this server has a, b" in server.refused(
        "/translate", {"source": "a", "memory": "c"}, 404
    )


def test_clients_of_deepl_name_a_memory_by_its_id(server: Server) -> None:
    answer = server.get("/v3/translation_memories").json
    first, _ = answer["translation_memories"]
    known = {"name": "a", "source_language": "en", "target_languages": ["de"], "segment_count": 3}
    assert answer["total_count"] == 2 and first.items() >= known.items()
    pages = [server.get(f"/v3/translation_memories?page={page}&page_size=1").json for page in range(3)]
    assert [len(page["translation_memories"]) for page in pages] == [1, 1, 0]
    body = {"text": ["some words"], "source_lang": "EN", "target_lang": "DE"}
    answer = server.post("/v2/translate", body | {"translation_memory_id": first["translation_memory_id"]}).json
    assert answer["translations"][0]["text"] == "einige Wörter"
    refused = server.post("/v2/translate", body | {"translation_memory_id": "x"})
    assert (refused.status, refused.json["message"]) == (400, "Value for 'translation_memory_id' not supported.")


def test_uploaded_documents_use_a_memory(server: Server) -> None:
    answer = server.send("POST", "/documents?name=a.txt&memory=a", b"some words\n")
    path = f"/documents/{answer.json['id']}"
    while server.get(path).json["state"] in ("waiting", "translating"):
        pass
    assert server.get(f"{path}/result").body == "einige Wörter\n".encode()


def test_a_server_with_several_directions_is_told_one(memory: Path, tmp_path: Path) -> None:
    models = two_models(tmp_path)
    said = failed("serve", *models, "--port=0", "--device=cpu", f"--memory=a={memory}")
    assert f"--memory {memory} has unclear languages; give NAME:SOURCE:TARGET={memory} with " in said
    assert "has unclear languages" in failed("serve", *models, "--port=0", "--device=cpu", f"--memory=a:fr:en={memory}")
    with serving(*models, "--device=cpu", f"--memory=a:en:de={memory}") as server:
        fields = {"source_lang": "en", "target_lang": "de", "memory": "a"}
        assert server.translate("some words", **fields)["translations"][0]["text"] == "einige Wörter"
        said = server.refused("/translate", {"source": "a", **fields, "target_lang": "fr"})
        assert said.startswith("prefix, constraints, glossaries, memories, markup and alignments need a single model")


def test_random_lines_are_those_of_the_model(model: Path, memory: Path) -> None:
    lines = some_sentences(20, seed=3)
    records = generated(model, lines, *OPTIONS, "--memory", memory)
    assert [line["hypotheses"] for line in records] == [
        line["hypotheses"] for line in generated(model, lines, *OPTIONS)
    ]
