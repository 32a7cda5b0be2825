"""Checkpoints that were made to do harm are refused in one sentence, at once and without taking memory.

Their checksums are correct if their content can have a checksum.
"""

import os
import random
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import CONFIG, change, folder_with_states, refused, saved, small_checkpoint, small_codec

from nmt.checkpoint import build_model, load_checkpoint, new_model
from nmt.checkpoint_file import read_content, write_content
from nmt.errors import NmtError
from nmt.model.runtime import is_out_of_memory

Content = dict[str, Any]
FIRST = "target_embedding.weight"


def written(content: Content, path: Path) -> Path:
    """Writes any content with a correct checksum, and returns the path."""
    with path.open("wb") as file:
        write_content(content, file)  # type: ignore[arg-type]
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(small_checkpoint(1), tmp_path_factory.mktemp("good") / "good.pt")


ODD_VALUES = [None, 3, "x", [], [1], {}, {1: 2}, torch.zeros(2), True, b"x", 2**200]


@pytest.mark.parametrize("part", ["model", "text", "weights"])
def test_a_part_of_another_type_is_refused(part: str, good: Path, tmp_path: Path) -> None:
    for value in ODD_VALUES:
        refused(written(read_content(good) | {part: value}, tmp_path / "x.pt"))


def test_missing_and_unknown_parts_are_refused(good: Path, tmp_path: Path) -> None:
    for part in read_content(good):
        content = read_content(good)
        del content[part]
        assert f"'{part}' is wrong" in refused(written(content, tmp_path / "x.pt"))
    assert "'more' is wrong" in refused(written(read_content(good) | {"more": 1}, tmp_path / "x.pt"))
    for part in ("provenance", "training"):
        assert f"'{part}' is wrong" in refused(written(read_content(good) | {part: [1]}, tmp_path / "x.pt"))
    refused(written({"x\n" * 1000: 1}, tmp_path / "x.pt"))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("model/d_model", 2**31 - 2, "--d-model must be at least 2 and at most 50000"),
        ("model/d_ff", 50_000, "encoder.0.feed_forward.inner.weight is (8, 8) instead of (50000, 8)"),
        ("model/encoder_layers", 100, "and 890 more"),
        ("model/d_model", "8", "--d-model must be a whole number, but is '8'"),
        ("model/heads", True, "--heads must be a whole number, but is True"),
        ("model/dropout", None, "--dropout must be a number, but is None"),
        ("model/dropout", torch.zeros(1), "--dropout must be a number"),
        ("model/dropout", float("nan"), "--dropout must be a finite number"),
        ("model/norm", ["post"], "--norm must be one of post, pre"),
        ("model/learned_positions", 2.5, "--learned-positions must be a whole number"),
        ("model/surprise", 1, "'surprise' unknown"),
        ("text/source_lang", "../../etc", "source_lang"),
        ("text/target_lang", "a\nb", "target_lang"),
        ("text/source_model", b"x" * 1000, "not a sentencepiece model"),
        ("text/source_model", "x", "(text processing: source_model)"),
        ("text/target_model", b"x", "joint_vocab contradicts target_model"),
        ("weights/" + "x\n" * 10**5, torch.zeros(1), "is unexpected"),
        (f"weights/{FIRST}", torch.zeros(3), f"{FIRST} is (3,) instead of"),
        (f"weights/{FIRST}", [1.0], "'weights' is wrong"),
    ],
)
def test_wrong_values_are_named(path: str, value: Any, message: str, good: Path, tmp_path: Path) -> None:
    content = read_content(good)
    change(content, path, value)
    assert message in refused(written(content, tmp_path / "x.pt"))


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.flatten()[:1].clone().expand(2**34),  # claims 64 GB
        lambda t: t.to("meta"),
        lambda t: t.to_sparse(),
        lambda t: t.half(),
        lambda t: t.to(torch.complex64).conj(),
        lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8),
        lambda t: t.T,
        lambda t: torch.cat((t, t))[: len(t)],  # a view of a larger storage
        lambda t: torch.nn.Parameter(t),
    ],
    ids=["stride 0", "meta", "sparse", "half", "conj", "quantised", "transposed", "part", "parameter"],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_of_other_kinds_are_refused(
    make: Callable[[torch.Tensor], torch.Tensor], good: Path, tmp_path: Path
) -> None:
    whole = torch.load(good, weights_only=True)
    whole["content"]["weights"][FIRST] = make(whole["content"]["weights"][FIRST])
    torch.save(whole, tmp_path / "x.pt")
    assert "is not a checkpoint of nmt" in refused(tmp_path / "x.pt")


def test_tensors_that_share_storage_are_refused(good: Path, tmp_path: Path) -> None:
    whole, large = torch.load(good, weights_only=True), torch.zeros(10**5)
    whole["content"]["weights"] |= {f"w{i}": large[:] for i in range(100)}
    torch.save(whole, tmp_path / "x.pt")
    assert "is not a checkpoint of nmt" in refused(tmp_path / "x.pt")


def archive(path: Path, pickled: bytes, entries: dict[str, bytes] | None = None, compression: int = 0) -> Path:
    """Writes a zip archive such as torch.save makes, with this pickle and further entries, and returns the path."""
    with zipfile.ZipFile(path, "w", compression) as made:
        for name, data in ({"data.pkl": pickled, "byteorder": b"little"} | (entries or {})).items():
            made.writestr(f"archive/{name}", data)
    return path


def text(value: str) -> bytes:
    """Returns the opcode of a string."""
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def checkpoint_of(content: bytes) -> bytes:
    """Returns a pickle of a checkpoint whose content is the result of these opcodes."""
    header = text("format") + text("nmt checkpoint") + text("schema_version") + b"K\x02" + text("sha256") + text("x")
    return b"\x80\x02}(" + header + text("content") + content + b"u."


DOUBLED = b"q\x01h\x01\x86" * 60  # replaces the value on the stack by a pair of it, 60 times
PICKLES = {
    "deep list": b"]" * 2000 + b"a" * 1999,
    "deep tuple": b")" + b"\x85" * 2000,
    "deep tuple as a key": b"})" + b"\x85" * 10**5 + b"Ns",
    "list in itself": b"]q\x01h\x01a",
    "exponentially large": b"}" + text("x") + b")\x85" + DOUBLED + b"s",
    "exponentially large key": b"})\x85" + DOUBLED + b"Ns",
    "slow codec": b"c_codecs\nencode\n" + text("".join(map(chr, range(0x4E00, 0x9E00)))) + text("punycode") + b"\x86R",
    "long string many times": b"]" + text("x" * 10**6) + b"q\x010(" + b"h\x01" * 10**5 + b"e",
    "keys with one hash": b"}("
    + b"".join(b"\x8a\x0a" + (i * (2**61 - 1)).to_bytes(10, "little") + b"N" for i in range(1, 30_000))
    + b"u",
    "function": b"cos\nsystem\n" + text("true") + b"\x85R",
    "class": b"ctorch\ndevice\n" + text("cpu") + b"\x85R",
    "global as a value": b"ccollections\nOrderedDict\n",
    "attributes": b"ccollections\nOrderedDict\n)R}b",
    "2 GB of zeros": b"cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R",
    "string that is too long": b"X\xff\xff\xff\xff",
    "number that is too long": b"\x8b" + struct.pack("<i", 10**6) + b"\x7f" * 10**6,
    "nothing": b"",
    "missing items": b"a",
    "missing memo": b"h\x05",
    "marks": b"(" * 1000,
    "storage only": text("storage") + b"Q",
}


@pytest.mark.parametrize("pickled", PICKLES.values(), ids=PICKLES)
def test_a_malicious_pickle_is_refused(pickled: bytes, tmp_path: Path) -> None:
    assert "is not a checkpoint of nmt" in refused(archive(tmp_path / "x.pt", checkpoint_of(pickled)))


def reference(shape: bytes, stride: bytes, numbers: bytes = b"K\x04") -> bytes:
    """Returns the opcodes of a tensor with its numbers in data/0."""
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + numbers + b"tQ"
    hooks = b"ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + shape + stride + b"\x89" + hooks + b"tR"


def test_shapes_that_contradict_the_file_are_refused(tmp_path: Path) -> None:
    huge = b"\x8a\x08" + struct.pack("<q", 2**62)
    negative = b"J" + struct.pack("<i", -2)
    path = tmp_path / "x.pt"
    sixteen_bytes = {"data/0": b"\0" * 16}
    assert "damaged: its content does not" in refused(
        archive(path, checkpoint_of(reference(b"K\x04\x85", b"K\x01\x85")), sixteen_bytes)
    )
    for shape, stride, numbers in [
        (b"K\x05\x85", b"K\x01\x85", b"K\x05"),
        (huge + b"\x85", b"K\x00\x85", huge),
        (huge + huge + b"\x86", b"K\x00K\x00\x86", b"K\x04"),
        (negative + negative + b"\x86", negative + b"K\x01\x86", b"K\x04"),
        (b"K\x04\x85", b"K\x02\x85", b"K\x04"),
        (b"K\x02K\x02\x86", b"K\x01K\x02\x86", b"K\x04"),
        (b"K\x04\x85", b"K\x01\x85", b"K\x08"),
        (b"G" + struct.pack(">d", 4.0) + b"\x85", b"K\x01\x85", b"K\x04"),
        (text("a") + b"\x85", b"K\x01\x85", b"K\x04"),
    ]:
        archive(path, checkpoint_of(reference(shape, stride, numbers)), sixteen_bytes)
        assert "is not a checkpoint of nmt" in refused(path)


def test_compressed_old_and_overlapping_archives_are_refused(good: Path, tmp_path: Path) -> None:
    path, message = tmp_path / "x.pt", "is not a checkpoint of nmt"
    with zipfile.ZipFile(good) as read:
        entries = {info.filename: read.read(info) for info in read.infolist()}
    for compression, copies in ((zipfile.ZIP_DEFLATED, 1), (zipfile.ZIP_STORED, 100)):
        with zipfile.ZipFile(path, "w") as made:
            for name, data in entries.items():
                made.writestr(name, data, compression if name.endswith("byteorder") else zipfile.ZIP_STORED)
            made.filelist *= copies  # the directory of the archive lists the same bytes many times
        assert message in refused(path)
    archive(path, b"\x80\x02" + b"}" * 10**7, compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 10**5
    assert message in refused(path)
    torch.save(torch.load(good, weights_only=True), path, _use_new_zipfile_serialization=False)
    assert message in refused(path)


def test_numbers_in_the_other_byte_order_are_read(good: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(good) as read, zipfile.ZipFile(tmp_path / "x.pt", "w") as made:
        for info in read.infolist():
            data = read.read(info)
            if "/data/" in info.filename:
                data = torch.frombuffer(bytearray(data), dtype=torch.float32).numpy().byteswap().tobytes()
            made.writestr(info.filename, b"big" if info.filename.endswith("byteorder") else data)
    found, expected = load_checkpoint(tmp_path / "x.pt").weights, load_checkpoint(good).weights
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_pipes_devices_and_impossible_names_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "pipe is a pipe or a device" in refused(tmp_path / "pipe")
    assert "is a pipe or a device" in refused(Path("/dev/zero"))
    assert "File name too long" in refused(tmp_path / ("x" * 300))
    assert "Not a directory" in refused(Path(__file__) / "x.pt")
    with pytest.raises(NmtError, match="cannot be the name of a file"):
        load_checkpoint("a\0b")


def edited(value: Any, draw: random.Random) -> Any:
    """Returns the content with a random change of one of its values, keys or shapes."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        changed = dict(value)
        if draw.random() < 0.2:
            del changed[key]
        elif draw.random() < 0.2:
            changed[draw.choice(["x", 3, ""])] = changed.pop(key)
        else:
            changed[key] = edited(value[key], draw)
        return changed
    if isinstance(value, torch.Tensor) and draw.random() < 0.5:
        return draw.choice([value[:1].clone(), value.flatten().clone(), torch.zeros(0), value * torch.nan])
    return draw.choice([*ODD_VALUES, -1, 2**31 - 1, 1e300, float("inf"), "\0", "\ud800", [[[]]], {"a": {}}])


@pytest.mark.parametrize("times", [30, pytest.param(2000, marks=pytest.mark.nightly)])
def test_an_edited_checkpoint_is_refused_in_one_sentence_or_gives_a_model(
    good: Path, tmp_path: Path, times: int
) -> None:
    draw, path = random.Random(0), tmp_path / "x.pt"
    content = read_content(good)
    refusals = 0
    for _ in range(times):
        written(edited(content, draw), path)
        try:
            build_model(load_checkpoint(path), path)
        except NmtError as error:
            refusals += 1
            assert str(path) in str(error)
    assert refusals > times / 2


# Models and training states


def test_a_loaded_model_has_the_parameters_and_buffers_of_the_saved_one(good: Path) -> None:
    model = build_model(load_checkpoint(good), good)
    assert not model.training
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in model.parameters())
    assert all(tensor.device.type == "cpu" for tensor in [*model.parameters(), *model.buffers()])
    expected = build_model(small_checkpoint(1), "memory")
    assert [name for name, _ in model.named_buffers()] == [name for name, _ in expected.named_buffers()]
    for found, buffer in zip(model.buffers(), expected.buffers(), strict=True):
        assert torch.equal(found, buffer)
        assert found.abs().sum() > 0


def test_a_model_that_is_too_large_does_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "does not fit into memory"
    monkeypatch.setattr("nmt.checkpoint.memory_bytes", lambda: 1000)
    with pytest.raises(NmtError, match=message):
        new_model(CONFIG, small_codec())
    monkeypatch.setattr("nmt.checkpoint.memory_bytes", lambda: 2**80)  # now only torch can notice it
    large = replace(CONFIG, d_model=10_000, heads=1000, d_k=50_000, d_v=50_000, learned_positions=1)
    with pytest.raises(NmtError, match=message):
        new_model(large, small_codec())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you"), True),
        (RuntimeError("could not create a primitive"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_errors_that_mean_out_of_memory_are_recognised(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) == expected


SCORES = {"update": 1, "nll": 1.0, "bleu": None, "chrf": None}
FLAWS: list[tuple[str, Any, str]] = [
    ("training/counters", ..., "its counters"),
    ("training/counters/x", 1, "its counters are not"),
    *((f"training/counters/{name}", value, f"counter {name} ") for name, value in [
        ("update", "x"), ("update", -1), ("update", 2**40), ("epoch", None), ("update_in_epoch", 1.5), ("best", []),
        ("seconds", float("nan")), ("flops", float("inf")), ("validated", True), ("snapshot_seconds", torch.zeros(1)),
    ]),
    *(("training/validations", value, "validation") for value in (
        None, [3], [{}], [SCORES | {"update": -1}], [SCORES | {"nll": 1}], [SCORES | {"bleu": "x"}],
    )),
    *(("training/optimizer", value, "its optimiser does not have one state") for value in (
        ..., None, [], {}, {"state": {}}, {"state": 3},
    )),
    *((f"training/optimizer/state/0/{part}", value, f"its optimiser's {part}") for part, value in [
        ("exp_avg", torch.zeros(3)), ("exp_avg_sq", None), ("step", torch.zeros(2)), ("step", 7),
        ("step", torch.tensor(-1.0)), ("step", torch.tensor(float("nan"))),
    ]),
    ("provenance/options", ..., "it lacks"),
    ("provenance/options/seed", torch.zeros(2), "--seed must be a whole number"),
    ("provenance/data", ..., "it lacks"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "message"), FLAWS)
def test_a_flawed_training_state_is_refused_and_kept(path: str, value: Any, message: str, tmp_path: Path) -> None:
    """Its checksum is right, so it is no accident: another version of nmt may have written it."""
    folder = folder_with_states(tmp_path)
    newest = tmp_path / "state-00000002.pt"
    content = read_content(newest)
    change(content, path, value)
    written(content, newest)
    with pytest.raises(NmtError) as error:
        folder.newest_state()
    assert "state-00000002.pt is not a training state that this version of nmt can resume" in str(error.value)
    assert message in str(error.value)
    assert newest.exists()
