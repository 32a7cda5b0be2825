"""Corrections are stored whole and once, whatever happens, and come back as translations."""

import errno
import json
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import pytest
from checkpoints import eloquent_checkpoint, saved, two_models
from commands import failed
from forks import At
from hypothesis import example, given, settings
from hypothesis import strategies as st
from servers import Server, serving

from nmt.errors import NmtError
from nmt.files import Output
from nmt.serving.corrections import Corrections
from nmt.serving.schema import Correction, CorrectionBody

LANG = "{http://www.w3.org/XML/1998/namespace}lang"
PAIR = {"source_lang": "en", "target_lang": "de"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(eloquent_checkpoint(2), tmp_path_factory.mktemp("model") / "model.safetensors")


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    (model.parent / "token").write_text("secret\n")
    options = ["--corrections", model.parent / "kept.jsonl", "--token-file", model.parent / "token"]
    with serving(model, "--device=cpu", *options, token="secret") as running:
        yield running


def body(source: str, target: str, **changed: Any) -> dict[str, Any]:
    return {"source": source, "target": target, "machine_translation": "um ol", **PAIR, **changed}


def kept(server: Server, source: str, target: str, **changed: Any) -> Any:
    answer = server.post("/corrections", body(source, target, **changed))
    assert answer.status == 200, answer.body
    return answer.json


def listed(server: Server, limit: int = 1000) -> list[Any]:
    return list(server.get(f"/corrections?limit={limit}").json["corrections"])


def test_a_correction_is_stored_listed_and_taken_back(server: Server, model: Path) -> None:
    file = model.parent / "kept.jsonl"
    first, second = kept(server, "some words", "einige Wörter"), kept(server, "more\u2028 words", "mehr <b>Wörter</b>")
    assert [json.loads(line) for line in file.read_text().split("\n")[-3:-1]] == [first, second]
    assert first.keys() == {"id", "time", "source", "target", "machine_translation", "source_lang", "target_lang"}
    assert first["time"].endswith("Z")
    assert listed(server, 2) == [second, first] and listed(server, 1) == [second]
    assert kept(server, "some words", "einige Wörter") == first  # a client that has got no answer tries again
    assert server.send("DELETE", f"/corrections/{first['id']}").status == 204
    assert listed(server, 1) == [second]
    undone = json.loads(file.read_text().split("\n")[-2])
    assert (undone["id"], undone["taken_back"]) == (first["id"], True)
    again = server.send("DELETE", f"/corrections/{first['id']}")
    assert again.status == 404 and "it was taken back" in again.json["error"]


def test_a_corrected_sentence_has_alternatives(server: Server) -> None:
    kept(server, "learn pieces", "Teile lernen")
    answer = server.post("/alternatives", {"source": "learn pieces"})
    assert answer.status == 200 and answer.json["alternatives"], answer.body


def test_a_memory_in_tmx_has_what_was_kept(server: Server, model: Path) -> None:
    hostile = 'a <seg>&amp; "b" \x01\x0b\ufffe]]> 𝄞 e\u0301'
    earlier = Corrections(str(model.parent / "kept.jsonl"), 1)  # an earlier version has stored control characters
    correction = earlier.keep(CorrectionBody(source="tags", target=hostile, **PAIR)).model_dump(mode="json")
    answer = server.get("/corrections.tmx")
    assert "corrections.tmx" in answer.headers["content-disposition"]
    memory = ElementTree.fromstring(answer.body)
    assert memory.get("version") == "1.4" and memory.find("header").attrib["srclang"] == "en"  # type: ignore[union-attr]
    assert len(memory.findall(".//tu")) == len(listed(server))
    unit = memory.findall(".//tu")[-1]
    assert {"tuid": correction["id"], "srclang": "en"}.items() <= unit.attrib.items()
    assert unit.attrib["creationdate"] == correction["time"].replace("-", "").replace(":", "")
    texts = {variant.attrib[LANG]: variant.findtext("seg") for variant in unit}
    assert texts == {"en": "tags", "de": hostile.replace("\x01\x0b\ufffe", "")}


def translated(server: Server, source: str, **fields: Any) -> Any:
    """Returns the only sentence of a text with its translations."""
    (sentence,) = server.translate(source, max_length_offset=3, **fields)["translations"][0]["sentences"]
    return sentence


def test_a_correction_translates_its_sentence_at_once(server: Server) -> None:
    model_says = translated(server, "learn 3 words")["hypotheses"]
    assert "log_prob" in model_says[0]
    first = kept(server, "learn 3 words", "lerne 3 Wörter")
    assert translated(server, "learn  3\u00a0words")["hypotheses"] == [{"text": "lerne 3 Wörter", "origin": "memory"}]
    assert translated(server, "learn 1,234 words")["hypotheses"][0]["text"] == "lerne 1.234 Wörter"
    near = translated(server, "learn 3 new words")
    assert "origin" not in near["hypotheses"][0]
    assert [(match["source"], match["target"]) for match in near["memory"]] == [("learn 3 words", "lerne 3 Wörter")]
    assert translated(server, "learn 3 words", prefix="um")["hypotheses"][0]["text"].startswith("um")
    second = kept(server, "learn 3 words", "lernt 3 Wörter")
    assert translated(server, "learn 3 words")["hypotheses"][0]["text"] == "lernt 3 Wörter"
    for correction, expected in ((second, first["target"]), (first, model_says[0]["text"])):
        assert server.send("DELETE", f"/corrections/{correction['id']}").status == 204
        assert translated(server, "learn 3 words")["hypotheses"][0]["text"] == expected


@pytest.mark.parametrize("before, behind", [
    (" ", " "), ("", "\n"), ("\t", "\r\n"), ("\xa0", "\u3000"), ("\u2003", "\u2028"),
])  # fmt: skip
def test_spaces_around_a_correction_are_no_part_of_it(server: Server, before: str, behind: str) -> None:
    first = kept(server, f"{before}few words{behind}", f"{before}wenige  Wörter{behind}")
    assert (first["source"], first["target"]) == ("few words", "wenige  Wörter")
    assert kept(server, "few words", "wenige  Wörter") == first
    assert server.translate("  few words ", max_length_offset=3)["translations"][0]["text"] == "  wenige  Wörter "


def test_spaces_of_corrections_that_an_earlier_version_has_stored_do_not_reach_translations(tmp_path: Path) -> None:
    stored = {**body(" a", "b "), "id": "1", "time": "2026-01-01T00:00:00Z"}
    (tmp_path / "kept.jsonl").write_text(json.dumps(stored, separators=(",", ":")) + "\n")
    assert Corrections(str(tmp_path / "kept.jsonl"), 1).pairs(("en", "de")) == [("a", "b")]


def test_the_latest_correction_is_the_last_pair_also_if_its_sentence_had_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    for n, (source, target) in enumerate([("3 dogs", "a"), ("4 dogs", "b"), ("3 dogs", "c")]):
        stored = {**body(source, target), "id": str(n), "time": f"2026-01-0{n + 1}T00:00:00Z"}
        with path.open("a") as file:
            file.write(json.dumps(stored, separators=(",", ":")) + "\n")
    assert Corrections(str(path), 1).pairs(("en", "de")) == [("4 dogs", "b"), ("3 dogs", "c")]


def test_a_first_line_that_a_killed_process_has_not_finished_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "kept.jsonl").write_text('{"sou\n')
    assert Corrections(str(tmp_path / "kept.jsonl"), 1).skipped == 1


def test_corrections_are_for_one_direction_also_through_a_third_language(tmp_path: Path) -> None:
    with serving(*two_models(tmp_path), "--device=cpu", "--corrections", tmp_path / "kept.jsonl") as server:
        pair = {"source_lang": "en", "target_lang": "fr"}
        direct, pivoted = (translated(server, "some words", **{**pair, "target_lang": lang}) for lang in ("de", "fr"))
        assert kept(server, "some words", "des mots", **(pair | {"source_lang": "en-GB"}))["source_lang"] == "en"
        assert translated(server, "some words", target_lang="de", source_lang="en") == direct
        assert translated(server, "some words", **pair)["hypotheses"] == [{"text": "des mots", "origin": "memory"}]
        (correction,) = listed(server)
        server.send("DELETE", f"/corrections/{correction['id']}")
        assert translated(server, "some words", **pair) == pivoted
        kept(server, "some words", "etwas")
        document = server.send("POST", "/documents?name=a.txt&source_lang=en&target_lang=de", b"some words\n").json
        while (answer := server.get(f"/documents/{document['id']}/result")).status == 503:
            pass
        assert answer.body == b"etwas\n"


@pytest.mark.parametrize("changed, status, said", [
    ({"source": " "}, 400, "source must be a sentence on one line"),
    ({"target": "a\nb"}, 400, "target must be a sentence on one line"),
    ({"target": None}, 400, "target is wrong"),
    ({"target": "a\0b"}, 400, "target has U+0000, which is no character of a text"),
    ({"source": "\0"}, 400, "source has U+0000"),
    ({"source": "a\x0bb"}, 400, "source has U+000B"),  # the sign of a word processor for a line break
    ({"target": "a\ufffe\x1bb"}, 400, "target has U+001B"),
    ({"source": "a" * 9_000, "target": "b" * 2_000}, 413, "at most 10,000"),
    ({"target": "\ud800"}, 400, "half of a surrogate pair"),
    ({"target_lang": "fr"}, 404, "no model translates 'en-fr'"),
    ({"target_lang": "en"}, 400, "source_lang and target_lang are both 'en'"),
    ({"id": "1"}, 400, "id is wrong"),
])  # fmt: skip
def test_a_wrong_correction_is_refused(server: Server, changed: dict[str, Any], status: int, said: str) -> None:
    assert said in server.refused("/corrections", body("a", "b") | changed, status)


def test_nothing_is_stored_without_the_token_or_the_option(server: Server, model: Path) -> None:
    before = (model.parent / "kept.jsonl").read_bytes()
    for method, path in (("POST", ""), ("GET", ""), ("GET", ".tmx"), ("DELETE", "/1")):
        sent = json.dumps(body("a", "b")).encode()
        assert server.send(method, f"/corrections{path}", sent, Authorization="").status == 401
    assert (model.parent / "kept.jsonl").read_bytes() == before
    assert server.get("/models").json["corrections"]
    with serving(model, "--device=cpu") as other:
        assert not other.get("/models").json["corrections"]
        other.refused("/corrections", body("a", "b"), 404)


def tear(path: Path) -> None:
    """Writes a part of a record, as a process does that is killed."""
    with path.open("ab") as file:
        file.write('{"source":"zwei","target":"ä'.encode()[:-1])


def test_a_torn_line_is_skipped_and_the_next_record_begins_a_line(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "kept.jsonl"
    with serving(model, "--device=cpu", "--corrections", file, before=At("os.fsync", 2)) as server:
        first = kept(server, "one", "eins")
        with pytest.raises(OSError):  # the server is killed behind the write
            kept(server, "two", "zwei")
    tear(file)
    with serving(model, "--device=cpu", "--corrections", file) as server:
        assert "line 3 is no correction and is skipped" in server.log
        assert server.get("/corrections").json["skipped"] == 1
        second = kept(server, "two", "zwei")
        third = kept(server, "three", "drei")
        assert listed(server) == [third, second, first]
    lines = file.read_bytes().split(b"\n")
    assert len(lines) == 5 and json.loads(lines[1]) == second and json.loads(lines[3]) == third


def no_space() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_correction_that_may_not_be_on_disk_is_sent_again_and_stored_once(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "kept.jsonl"
    with serving(model, "--device=cpu", "--corrections", file, before=At("os.fsync", 1, do=no_space)) as server:
        assert "its log says why" in server.refused("/corrections", body("one", "eins"), 503)
        assert [kept(server, "one", "eins")] == listed(server)
        assert len(file.read_text().splitlines()) == 1
        file.unlink()
        assert listed(server) == []
        assert [kept(server, "one", "eins")] == listed(server)


def test_servers_share_a_file(model: Path, tmp_path: Path) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(8) as clients:
        options = [model, "--device=cpu", "--corrections", tmp_path / "kept.jsonl"]
        servers = [stack.enter_context(serving(*options)) for _ in range(2)]
        keep = [partial(kept, servers[i % 2], f"words {chr(97 + i)}", f"W {chr(97 + i)}") for i in range(24)]
        corrections = list(clients.map(lambda send: send(), keep))
        for server in servers:
            assert {c["id"] for c in listed(server)} == {c["id"] for c in corrections}
        assert translated(servers[0], "words b")["hypotheses"][0]["text"] == "W b"
        assert servers[1].send("DELETE", f"/corrections/{corrections[1]['id']}").status == 204
        assert "origin" not in translated(servers[0], "words b")["hypotheses"][0]
        assert corrections[1] not in listed(servers[0])
    assert len((tmp_path / "kept.jsonl").read_text().splitlines()) == 25


def test_a_file_that_cannot_be_read_for_a_while_costs_nothing(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    with serving(model, "--device=cpu", "--corrections", path) as server:
        kept(server, "um ol", "eins")
        path.rename(tmp_path / "elsewhere")
        path.mkdir()
        for _ in range(2):
            assert translated(server, "um ol")["hypotheses"][0]["text"] == "eins"
        path.rmdir()
        assert listed(server) == []
        (tmp_path / "elsewhere").rename(path)
        assert translated(server, "um ol")["hypotheses"][0]["text"] == "eins"
        server.process.send(signal.SIGTERM)
        server.ended()
    assert server.log.count("cannot be read (Is a directory)") == 1 and "kept.jsonl was removed" in server.log


def test_a_wrong_file_is_refused_and_stays(model: Path, tmp_path: Path) -> None:
    content = model.read_bytes()
    assert "is a file of another kind" in failed("serve", model, "--port=0", "--corrections", model)
    assert model.read_bytes() == content
    for path, said in ((tmp_path, "is a folder"), (tmp_path / "no" / "file", "cannot be written")):
        with pytest.raises(NmtError, match=said):
            Corrections(str(path), 1)


def write_slowly() -> None:
    """Makes a server write byte by byte, so that it can be killed within a record."""
    write = Output.write

    def bytewise(self: Output, data: bytes) -> int:
        return sum(write(self, data[i : i + 1]) for i in range(len(data)))

    Output.write = bytewise  # type: ignore[assignment, method-assign]


@pytest.mark.nightly
def test_nothing_is_lost_or_twice_when_servers_are_killed_200_times(model: Path, tmp_path: Path) -> None:
    draw, file = random.Random(6), tmp_path / "kept.jsonl"
    acknowledged: list[Any] = []
    waiting = [[f"words {client}"] for client in range(8)]  # the sentences that clients have got no answer for

    def client(server: Server, sentences: list[str]) -> None:
        while True:
            try:
                acknowledged.append(kept(server, sentences[0], f"die {sentences[0]}"))
            except (OSError, HTTPException):  # it is sent again to the next server
                return
            sentences[:] = [f"{sentences[0]}'"]

    options = [model, "--device=cpu", "--corrections", file]
    for _ in range(25):
        with ExitStack() as stack, ThreadPoolExecutor(8) as threads:
            servers = [stack.enter_context(serving(*options, before=write_slowly)) for _ in waiting]
            done = threads.map(client, servers, waiting)
            for server in servers:
                time.sleep(draw.uniform(0, 0.1))
                server.process.send(signal.SIGKILL)
            assert len(list(done)) == 8
    with serving(*options) as server:
        acknowledged += [kept(server, sentence, f"die {sentence}") for (sentence,) in waiting]
        skipped = server.get("/corrections").json.get("skipped", 0)
        units = ElementTree.fromstring(server.get("/corrections.tmx").body).iter("tu")
    assert sorted(unit.attrib["tuid"] for unit in units) == sorted(correction["id"] for correction in acknowledged)
    assert len({correction["source"] for correction in acknowledged}) == len(acknowledged)
    *lines, end = file.read_bytes().split(b"\n")
    assert (len(lines), end) == (len(acknowledged) + skipped, b"")


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.lists(st.tuples(texts, texts, st.booleans()), max_size=6), st.binary(), st.booleans())
@settings(max_examples=40)
@example([("a", "b", False)], b'{"source":"1"}\n\n[1]\n', False)
def test_any_text_comes_back_and_any_torn_tail_is_skipped(
    pairs: list[tuple[str, str, bool]], tail: bytes, is_cut: bool
) -> None:
    with TemporaryDirectory() as folder:
        path = f"{folder}/kept.jsonl"
        writer, reader = Corrections(path, 1), Corrections(path, 1)
        expected: list[Correction] = []
        for source, target, is_taken_back in pairs:
            correction = writer.keep(CorrectionBody(source=source, target=target, **PAIR))
            expected += [correction] * (correction not in expected)
            if is_taken_back:
                assert writer.take_back(correction.id)
                expected.remove(correction)
            if is_cut:
                with open(path, "ab") as file:
                    file.write(tail)
        assert reader.all() == Corrections(path, 1).all() == expected
