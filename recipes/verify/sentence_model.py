"""Writes a model in the format of MiniSBD that ends a sentence at each full stop, question mark and exclamation mark.

    python sentence_model.py FILE.onnx

Argos Translate would download a trained model. This one lets it work without a network. It needs the package onnx.
"""

import json
import sys

import onnx
from onnx import TensorProto, helper

UNITS = ["<PAD>", "<UNK>", ".", "?", "!"]
# The scores of the classes of a character: within a token, end of a token, end of a sentence, and two other ends.
WITHIN, END_OF_SENTENCE = [1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]


def main() -> None:
    scores = [score for unit in UNITS for score in (END_OF_SENTENCE if len(unit) == 1 else WITHIN)]
    table = helper.make_tensor("table", TensorProto.FLOAT, [len(UNITS), len(WITHIN)], scores)
    inputs = [
        helper.make_tensor_value_info("units", TensorProto.INT64, ["sentences", "characters"]),
        helper.make_tensor_value_info("features", TensorProto.FLOAT, ["sentences", "characters", "features"]),
    ]
    output = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["sentences", "characters", len(WITHIN)])
    look_up = helper.make_node("Gather", ["table", "units"], ["scores"])
    graph = helper.make_graph([look_up], "sentences", inputs, [output], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    vocabulary = {"lang": "", "_id2unit": UNITS, "_unit2id": {unit: i for i, unit in enumerate(UNITS)}}
    config = {"batch_size": 1, "feat_funcs": ["capitalized"]}
    helper.set_model_props(model, {"config": json.dumps(config), "vocab": json.dumps(vocabulary)})
    onnx.save(model, sys.argv[1])


main()
