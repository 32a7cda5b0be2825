// Translates standard input with an exported ONNX folder in transformers.js, greedily: node onnx_node.mjs FOLDER
import { readFileSync } from "node:fs";
import { basename, dirname } from "node:path";
import { env, pipeline } from "@huggingface/transformers";

const folder = process.argv[2];
env.allowRemoteModels = false;
env.localModelPath = dirname(folder);
const translate = await pipeline("translation", basename(folder), { dtype: "fp32", device: "cpu" });
for (const line of readFileSync(0, "utf8").trimEnd().split("\n")) {
  const [output] = await translate(line, { num_beams: 1 });
  console.log(output.translation_text);
}
