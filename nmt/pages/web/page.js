// Translates in the page with transformers.js, sentence by sentence.
import { protection } from "./protected.js";

const byId = id => document.getElementById(id);
const [source, translation, status] = ["source", "translation", "status"].map(byId);

function fail(error) {
  console.error(error);
  translation.textContent = ""; // that of another text would be wrong
  translation.classList.remove("waiting");
  status.classList.add("error");
  const message = String(error.message ?? error).replace(/\.$/, "");
  status.textContent = `${message}. See README.md in the folder of this page.`;
}

async function load() {
  navigator.serviceWorker?.register("offline.js"); // keeps all files, so that the page also opens without a server
  const { pipeline, env } = await import("./engine/transformers.web.min.js").catch(() => {
    throw new Error(
      "The engine cannot be loaded. Run npm run engine in the folder of this page, and serve .mjs files as text/javascript"
    );
  });
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = "./";
  env.useBrowserCache = false; // offline.js keeps the files
  env.backends.onnx.wasm.wasmPaths = { wasm: new URL("engine/ort-wasm-simd-threaded.wasm", location.href).href };
  env.backends.onnx.wasm.numThreads = 1; // more need a server that isolates the page
  const translate = await pipeline("translation", "model", { dtype: "q8", device: "wasm" });
  const languages = translate.model.config.nmt.text;
  await translate(".", { num_beams: 1 }); // the first call prepares the engine
  return { translate, languages, words: protection(await (await fetch("protected.json")).json()) };
}

// Returns the language tag for a code such as en, en_GB or deu_Latn; undefined for a code that is none.
function tag(code) {
  try {
    return Intl.getCanonicalLocales(code.replaceAll("_", "-"))[0];
  } catch {
    return undefined;
  }
}

function show({ source_lang: from, target_lang: to }) {
  const names = new Intl.DisplayNames(["en"], { type: "language" });
  const name = code => (tag(code) ? names.of(tag(code)) : code);
  document.title = byId("title").textContent = `${name(from)} to ${name(to)}`;
  byId("source-lang").textContent = name(from);
  byId("target-lang").textContent = name(to);
  translation.lang = tag(to) ?? "";
  source.lang = tag(from) ?? "";
}

// Returns the sentences of a text, and what stands between them, in order.
function sentences(text, language, words) {
  const segmenter = new Intl.Segmenter(tag(language), { granularity: "sentence" });
  return text
    .split(/(\n+)/)
    .flatMap(part => words.joined([...segmenter.segment(part)].map(sentence => sentence.segment)));
}

const LONGEST = 512; // pieces that are translated at once, as --max-source-length of nmt generate

// Returns a sentence in parts that are not too long for the model, split at spaces if possible.
function parts(tokenizer, sentence) {
  if (tokenizer.encode(sentence).length <= LONGEST) return [sentence];
  let half = sentence.length >> 1;
  if (/[\udc00-\udfff]/.test(sentence[half])) half--; // the second half of a character
  const space = sentence.lastIndexOf(" ", half);
  const middle = space > 0 ? space : half;
  return [sentence.slice(0, middle), sentence.slice(middle)].flatMap(part => parts(tokenizer, part));
}

const known = new Map(); // the translations of this page's life, by sentence

async function translated(translate, sentence, words) {
  const text = sentence.trim();
  if (words.stays(text)) return sentence;
  if (!known.has(text)) {
    const max_new_tokens = translate.tokenizer.encode(text).length + 50; // as nmt generate ends runaway translations
    const [answer] = await translate(text, { num_beams: 1, max_new_tokens });
    known.set(text, words.restored(text, answer.translation_text));
  }
  return sentence.replace(text, () => known.get(text)); // keeps the spaces around the text
}

let latest = 0;

async function update({ translate, languages, words }) {
  const call = ++latest, started = performance.now();
  let done = "";
  translation.classList.add("waiting");
  const all = sentences(source.value, languages.source_lang, words).flatMap(sentence => parts(translate.tokenizer, sentence));
  for (const part of all) {
    done += await translated(translate, part, words);
    await new Promise(resume => setTimeout(resume)); // lets the page react to typing
    if (call !== latest) return;
    translation.textContent = done;
  }
  translation.textContent = done;
  translation.classList.remove("waiting");
  status.classList.remove("error");
  status.textContent = all.length ? `Translated in ${Math.round(performance.now() - started)} ms.` : "Ready.";
}

try {
  const loaded = await load();
  show(loaded.languages);
  status.textContent = "Ready.";
  let waiting;
  source.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => update(loaded).catch(fail), 250);
  });
  if (source.value) update(loaded).catch(fail);
} catch (error) {
  fail(error);
}
