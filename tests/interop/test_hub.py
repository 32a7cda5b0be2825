"""Published models are downloaded by name from a server that speaks the protocol of Hugging Face's hub."""

import json
import os
import socket
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import marian
import marian_loop
import multilingual
import pytest
import torch
from commands import TRAIN, failed, run, weights
from safetensors.torch import load_file

import nmt
from nmt.checkpoint_format import read_header
from nmt.interop import hub

NAME, COMMIT = "Some-Org/opus-mt-en-fr", "0123456789abcdef0123456789abcdef01234567"
LINES = b"A dog runs.\nOne, two.\n"


@dataclass
class Hub:
    """A hub with one repository.

    Attributes:
        files: the content of the repository.
        statuses: the status of the answer for a path, in place of 200, and the hub's code of the error.
        cut: how many bytes of a file are sent until the connection breaks; once for each file.
        damaged: how often a file arrives damaged.
        asked: the requests that came.
        pushed: the files that were uploaded.
        others: what else lies on the server, by path.
    """

    files: dict[str, bytes]
    statuses: dict[str, tuple[int, str]] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    damaged: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    commit: str = COMMIT
    address: str = ""
    pushed: dict[str, bytes] = field(default_factory=dict)
    others: dict[str, bytes] = field(default_factory=dict)

    def downloads(self) -> list[str]:
        """Returns the names of the files that were downloaded."""
        return [each.split("/")[-1] for each in self.asked if each.startswith("GET") and "/resolve/" in each]

    def repository(self) -> dict[str, Any]:
        siblings = []
        for name, content in self.files.items():
            blob = sha1(b"blob %d\0" % len(content) + content).hexdigest()
            sibling: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": blob}
            if name.endswith((".safetensors", ".bin")):
                sibling["lfs"] = {"sha256": sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
            siblings.append(sibling)
        return {"id": NAME, "sha": self.commit, "siblings": siblings, "cardData": {"license": "cc-by-4.0"}, "tags": []}


def handler(server: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def answer(self, status: int, body: bytes, **headers: object) -> None:
            self.send_response(status)
            for name, value in ({"Content-Length": len(body)} | headers).items():
                self.send_header(name.replace("_", "-"), str(value))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            server.asked.append(f"{self.command} {path}")
            status, code = next((each for end, each in server.statuses.items() if path.endswith(end)), (200, ""))
            if status != 200:
                self.answer(status, b"{}", X_Error_Code=code)
            elif path in server.others:
                content, cut = server.others[path], server.cut.pop(path, None)
                self.answer(200, content[:cut], **{"Content-Length": len(content)})
                if cut:
                    self.connection.shutdown(socket.SHUT_RDWR)
            elif path in (f"/api/models/{NAME}", f"/api/models/{NAME}/revision/v1"):
                self.answer(200, json.dumps(server.repository()).encode())
            elif path.startswith(f"/{NAME}/resolve/{server.commit}/"):
                self.send_file(path.rsplit("/", 1)[1])
            else:
                self.answer(404, b"{}", X_Error_Code="RevisionNotFound" if "/revision/" in path else "RepoNotFound")

        do_HEAD = do_GET

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.asked.append(f"POST {self.path}")
            status = 200 if self.headers["Authorization"] == "Bearer secret" else 401
            if self.path.endswith("/preupload/main"):
                files = [
                    {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for each in json.loads(body)["files"]
                ]
                self.answer(status, json.dumps({"files": files}).encode())
            elif "/commit/" in self.path:
                values = [json.loads(line)["value"] for line in body.splitlines()]
                server.pushed = {each["path"]: b64decode(each["content"]) for each in values if "path" in each}
                answer = {"commitUrl": f"{server.address}/{NAME}/commit/{COMMIT}", "commitOid": COMMIT}
                self.answer(status, json.dumps(answer).encode())
            else:
                self.answer(status, json.dumps({"url": f"{server.address}/{NAME}", "name": NAME}).encode())

        def send_file(self, name: str) -> None:
            content, start = server.files[name], int(self.headers.get("Range", "bytes=0-")[6:].split("-")[0])
            headers: dict[str, object] = {"ETag": f'"{sha256(content).hexdigest()}"', "X-Repo-Commit": server.commit}
            if self.command == "GET" and server.damaged.get(name, 0):
                server.damaged[name] -= 1
                content = content[:-1] + bytes([content[-1] ^ 1])
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            body = content[start:]
            if self.command == "GET" and name in server.cut:
                self.answer(200, body[: server.cut.pop(name)], **headers | {"Content-Length": len(body)})
                self.connection.shutdown(socket.SHUT_RDWR)
            else:
                self.answer(206 if start else 200, body, **headers)

    return Handler


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder of a MarianMT model."""
    folder = tmp_path_factory.mktemp("model") / "model"
    marian.write_model(folder)
    return folder


@pytest.fixture
def served(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Returns a running hub, which `nmt` uses, with empty caches."""
    constants = pytest.importorskip("huggingface_hub").constants
    server = Hub({path.name: path.read_bytes() for path in folder.iterdir()})
    server.files |= {"README.md": b"A model.", "tf_model.h5": b"other weights", "rust_model.ot": b"other weights"}
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler(server))
    Thread(target=http.serve_forever, daemon=True).start()
    server.address = f"http://127.0.0.1:{http.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", server.address)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace("https://huggingface.co", server.address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setattr("time.sleep", lambda _: None)  # before huggingface_hub resumes
    yield server
    http.shutdown()
    http.server_close()


def test_a_name_is_downloaded_and_imported_once(
    served: Hub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("import", "huggingface", folder, f"--output={tmp_path}/by_hand.safetensors")
    expected = run("generate", tmp_path / "by_hand.safetensors", stdin=LINES).stdout
    first = run("generate", NAME, stdin=LINES)
    assert first.stdout == expected
    assert "licence: cc-by-4.0" in first.stderr
    assert not {"README.md", "tf_model.h5", "rust_model.ot"} & {*served.downloads()}
    served.asked.clear()
    second = run("generate", NAME, stdin=LINES)
    assert (second.stdout, served.asked) == (expected, [])
    assert "licence" not in second.stderr
    run("generate", f"{NAME}@v1", stdin=LINES)  # the same commit
    assert served.downloads() == []
    # The files of huggingface_hub may be deleted, and so may the package.
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert nmt.Translator.load(NAME).translate(LINES.decode().splitlines()) == expected.decode().splitlines()
    imported = read_header(hub.checkpoint_file(NAME))[0]["provenance"]["imported"]
    assert imported == {"format": "huggingface", "folder": NAME, "revision": COMMIT, "license": "cc-by-4.0"}


@pytest.mark.usefixtures("served")
def test_a_name_may_stand_in_place_of_any_checkpoint(tmp_path: Path) -> None:
    description = json.loads(run("info", "--json", NAME).stdout)
    assert description["provenance"]["imported"]["folder"] == NAME
    run("attention", NAME, "--source=A dog runs.", f"--output={tmp_path}/page.html")
    for lang in ("en", "fr"):
        (tmp_path / f"text.{lang}").write_bytes(LINES * 9)
    corpora = [f"--{option}={tmp_path}/text" for option in ("train", "valid")]
    run("preprocess", "--source-lang=en", "--target-lang=fr", *corpora, f"--dest={tmp_path}/data", f"--like={NAME}")
    start = ["train", f"{tmp_path}/data", *TRAIN[1:], "--max-updates=1", "--valid-metric=nll", "--lr-schedule=constant"]
    run(*start, "--lr=1e-9", f"--init-from={NAME}", f"--save-dir={tmp_path}/run")
    base_weights, tuned_weights = weights(Path(description["path"])), weights(tmp_path / "run" / "best.safetensors")
    assert all(torch.allclose(base_weights[name], tuned_weights[name], atol=1e-7) for name in base_weights)
    models = f"--score-with {NAME} {description['path']} --keep=0.5 --source-lang=en --target-lang=fr".split()
    cleaned = failed("clean", *models, f"--train={tmp_path}/text", f"--dest={tmp_path}/clean")
    assert f"--score-with {description['path']} translates en to fr, but must translate fr to en" in cleaned


def test_a_cut_connection_is_resumed_and_a_damaged_file_downloaded_again(served: Hub) -> None:
    served.cut["model.safetensors"], served.damaged["source.spm"] = 5000, 1
    run("generate", NAME, stdin=LINES)
    assert served.downloads().count("model.safetensors") == served.downloads().count("source.spm") == 2


@pytest.mark.parametrize("name", ["vocab.json", "model.safetensors"])
def test_a_file_that_stays_damaged_is_not_used(served: Hub, tmp_path: Path, name: str) -> None:
    served.damaged[name] = 2
    assert f"{name} arrived damaged twice" in failed("generate", NAME)
    assert not list((tmp_path / "cache").rglob("*.safetensors"))
    run("generate", NAME, stdin=LINES)


def test_an_unsuitable_model_is_refused_before_its_weights_are_downloaded(
    served: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, weights = served.files["config.json"], served.files.pop("model.safetensors")
    assert "has no weights in model.safetensors or pytorch_model.bin" in failed("generate", NAME)
    served.files |= {"model.safetensors": weights, "config.json": b'{"model_type": "bart"}'}
    message = failed("generate", NAME)
    assert message.startswith(f"error: {NAME}: ")
    assert "is for a model of type 'bart'" in message
    served.files["config.json"], served.commit = config, "1" * 40
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    assert "GB are free there; free some, or set HF_HUB_CACHE" in failed("generate", NAME)
    assert "model.safetensors" not in served.downloads()


@pytest.mark.parametrize(
    ("end", "status", "code", "said"),
    [
        ("config.json", 403, "GatedRepo", "is only for users whom its owner has let in; accept its terms"),
        (NAME, 401, "", "is neither a file here nor a model that Hugging Face's hub shows you; check the name"),
        (NAME, 404, "RepoNotFound", "is neither a file here nor a model that Hugging Face's hub shows you"),
        (NAME, 403, "", "Hugging Face's hub refuses Some-Org/opus-mt-en-fr (status 403); run hf auth login"),
        (NAME, 503, "", "cannot be reached (Server error '503 Service Unavailable'"),
    ],
)
def test_refusals_are_one_sentence(served: Hub, end: str, status: int, code: str, said: str) -> None:
    served.statuses[end] = status, code
    message = failed("generate", NAME)
    assert NAME in message
    assert said in message


def test_names_that_lead_nowhere(served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "does not have this revision; give a branch" in failed("generate", f"{NAME}@v2")
    monkeypatch.chdir(tmp_path)
    Path("Some-Org/opus-mt-en-fr").mkdir(parents=True)
    assert f"{NAME} is a folder" in failed("generate", NAME)  # a path of this machine goes first
    for path in ("Some-Org/typo", "no/file.safetensors", "runs/x/average", "run/best.pt"):  # asks nobody
        assert f"{path} does not exist; check the name" in failed("generate", path)
        assert f"{path} does not exist; check the name" in failed("info", path)
    assert served.asked == [f"GET /api/models/{NAME}/revision/v2"]
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # where nothing listens
    message = failed("generate", "Other/model")
    assert "Other/model cannot be reached" in message
    assert "hf download Other/model --local-dir FOLDER" in message
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "needs the package huggingface_hub" in failed("generate", "Other/model")


def test_an_exported_folder_is_uploaded(served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = "export", "huggingface", NAME, f"--push={NAME}"
    assert f"to {served.address}/{NAME}" in run(*export, f"--output={tmp_path}/out").stderr
    assert served.pushed == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert "README.md" in served.pushed
    monkeypatch.setenv("HF_TOKEN", "wrong")
    assert "run hf auth login" in failed(*export, f"--output={tmp_path}/wrong")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    assert f"--push {NAME} needs a token" in failed(*export, f"--output={tmp_path}/none")
    assert "give NAMESPACE/NAME" in failed(*export[:-1], "--push=a/b/c", f"--output={tmp_path}/none")
    assert not (tmp_path / "none").exists()


@pytest.mark.nightly
def test_a_model_of_many_languages_is_translated_with_by_name(served: Hub, tmp_path: Path) -> None:
    """A new process, with the variables of huggingface_hub. The weights are shards of torch with an index."""
    model = tmp_path / "nllb"
    multilingual.write_nllb(model)
    tensors = load_file(model / "model.safetensors")
    shards = {name: f"pytorch_model-0000{i % 2 + 1}-of-00002.bin" for i, name in enumerate(tensors)}
    for shard in set(shards.values()):
        torch.save({name: tensors[name] for name in tensors if shards[name] == shard}, model / shard)
    (model / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": shards}))
    served.files = {path.name: path.read_bytes() for path in model.iterdir() if path.name != "model.safetensors"}
    languages = "--source-lang", "eng_Latn", "--target-lang", "deu_Latn"
    run("import", "huggingface", model, f"--output={tmp_path}/by_hand.safetensors")
    expected = run("generate", tmp_path / "by_hand.safetensors", *languages, stdin=LINES).stdout
    hidden = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HOME": str(tmp_path / "huggingface"), "HF_ENDPOINT": served.address}
    command = [sys.executable, "-m", "nmt", "generate", NAME, *languages]
    done = subprocess.run(command, input=LINES, capture_output=True, env=os.environ | hidden, timeout=600)
    assert done.stdout == expected, done.stderr


NAMES = {"model": "model.enpt.npz", "vocab": "vocab.enpt.spm", "lex": "lex.50.50.enpt.s2t.bin"}


def test_a_model_of_firefox_is_downloaded_from_mozillas_index(
    served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_FIREFOX", f"{served.address}/v1/")
    base = {"capabilities": {"attachments": {"base_url": f"{served.address}/cdn/"}}}
    records = []
    marian_loop.write_model(tmp_path / "firefox", {}, kind="npz")
    model = (tmp_path / "firefox" / "model.npz").read_bytes()
    contents = {"model": model, "vocab": marian_loop.spm(), "lex": b"a shortlist"}
    for version, hidden in (("1.9", ""), ("1.10", ""), ("1.10a1", ""), ("2.0", "env.channel == 'nightly'")):
        for kind, content in contents.items():
            served.others[location := f"/cdn/{version}/{kind}"] = content if version == "1.10" else b"another model"
            attachment = {"location": location[5:], "filename": NAMES[kind], "size": len(content)}
            attachment["hash"] = sha256(content).hexdigest()
            record = {"fromLang": "en", "toLang": "pt", "version": version, "fileType": kind, "attachment": attachment}
            records.append(record | {"filter_expression": hidden})
    index = "/v1/buckets/main/collections/translations-models/records"
    served.others |= {"/v1/": json.dumps(base).encode(), index: json.dumps({"data": records}).encode()}
    served.cut[index] = 10
    assert "firefox:en-pt cannot be reached (IncompleteRead" in failed("generate", "firefox:en-pt")
    served.cut["/cdn/1.10/model"] = 10
    assert "firefox:en-pt cannot be reached (IncompleteRead" in failed("generate", "firefox:en-pt")
    first = run("generate", "firefox:en-pt", stdin=LINES)
    assert "firefox:en-pt, version 1.10" in first.stderr
    assert "GET /cdn/1.10/lex" not in served.asked
    served.asked.clear()
    assert run("generate", "firefox:en-pt", stdin=LINES).stdout == first.stdout
    assert served.asked == []
    assert "model.enpt.npz arrived damaged; run" in failed("generate", "firefox:en-pt@1.9")
    assert "Mozilla's index has no firefox:pt-en; it has en-pt" in failed("generate", "firefox:pt-en")
    assert "no firefox:en-pt@3.0; it has 1.10, 1.10a1, 1.9" in failed("generate", "firefox:en-pt@3.0")
    served.others[index] = b"<html>"
    assert "has no data in JSON" in failed("generate", "firefox:pt-es")
    monkeypatch.setattr(hub, "_FIREFOX", f"{served.address}/v2/")
    assert "firefox:pt-es cannot be reached (HTTP Error 404" in failed("generate", "firefox:pt-es")
