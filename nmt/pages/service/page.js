"use strict";
// The page of nmt serve.
const state = { languages: new Map(), directions: [], examples: {}, pair: {}, hasAttention: false, detected: null, text: "", tail: "", path: [], sentences: [], selected: null, request: null, timer: null, word: null, token: null };
try { state.token = sessionStorage.getItem("token"); } catch { /* a browser may refuse to have stored it */ }
const DETECT = ""; // the value of the entry that asks the server for the source language
const WAIT_MS = 250; // after the last key
const N_BEST = 4;
const LEAST_IDENTIFIED = 30; // characters of a text whose language can be told
const MANY = 12; // languages; if there are more, they can be searched
const DOUBTFUL = 0.5; // the confidence below which a sentence is marked
const RECENT = 5; // languages that come first, as they were chosen lately

const hasSpaces = () => state.languages.get(state.pair.target_lang)?.spaces;
const sourceLang = () => $("from").value === DETECT ? state.detected : $("from").value;
// What translates between two languages: models, or two models with a pivot language between them.
const isSingle = ({ source_langs: from, target_langs: to }) => from.length * to.length === 1;
const between = (source, target) => state.directions.filter(each =>
  each.source_langs.includes(source) && each.target_langs.includes(target) && (source !== target || isSingle(each)));
const chosenPair = () => between(sourceLang(), $("to").value)[$("model").selectedIndex];
// Two models that translate in turn use no glossary and no memory.
const terms = models => Object.fromEntries(["glossary", "memory"].map(id => [id, $(id).value]).filter(([, name]) => name && models.length < 2));
const options = () => {
  const beam = Math.max(1, Number($("beam").value) || 1), models = chosenPair()?.models ?? [];
  const single = models.length === 1 ? { model: models[0], alignments: true } : {};
  return { source_lang: sourceLang(), target_lang: $("to").value, ...single, ...terms(models), beam, n_best: Math.min(N_BEST, beam) };
};

// Asks for the language of the text if the user has not chosen one.
async function detect(source, signal) {
  if ($("from").value !== DETECT) return;
  const { detected } = await call("/detect", { source, target_lang: $("to").value }, signal);
  state.detected = detected[0].language;
  showLanguages();
}

// Does work when no key has been pressed for a while.
function later(work) {
  clearTimeout(state.timer);
  state.timer = setTimeout(work, WAIT_MS);
}

async function translate() {
  clearTimeout(state.timer);
  state.request?.abort();
  closeAlternatives();
  showExamples();
  const source = $("source").value, request = state.request = new AbortController();
  if (!source.trim() || !state.languages.size) { // `start` translates when it has the languages
    $("translation").classList.remove("waiting");
    return clear();
  }
  $("translation").classList.add("waiting");
  const started = performance.now();
  const answer = await shown(async () => {
    await detect(source, request.signal);
    return call("/translate", { source, ...options() }, request.signal);
  });
  if (request !== state.request) return;
  $("translation").classList.remove("waiting");
  if (!answer) return clear();
  state.path = answer.models;
  const isSamePair = state.pair.source_lang === sourceLang() && state.pair.target_lang === $("to").value;
  state.pair = { source_lang: sourceLang(), target_lang: $("to").value };
  state.text = answer.translations[0].text;
  const previous = isSamePair ? state.sentences : [];
  state.sentences = answer.translations[0].sentences.map(sentence => ({ ...sentence, chosen: 0 }));
  moveForms(previous);
  locate(source);
  divide();
  state.selected = state.sentences[0] ?? null;
  const missing = state.sentences.flatMap(({ hypotheses: [best] }) => best.terms ?? []).filter(({ used }) => !used);
  const canChoose = state.sentences.some(({ hypotheses: [best] }) => best.segments);
  const lacks = [...new Set(missing.map(({ source, targets }) => `“${targets[0]}” for “${source}”`))].join(", ");
  say(lacks ? `Missing terms of the glossary: ${lacks}.` : doubtsInWords() || (canChoose ? "Click a word of the translation to choose another." : ""), Boolean(lacks));
  shown(() => warnOfLanguage(source, request.signal));
  $("timing").textContent = `${Math.round(performance.now() - started)} ms`;
  draw();
}

// Says that the text seems to be in another language than the chosen one. Short texts are unclear.
async function warnOfLanguage(source, signal) {
  const chosen = state.languages.get($("from").value);
  if (!chosen?.identified || source.trim().length < LEAST_IDENTIFIED) return;
  const { detected: [{ language, probability }] } = await call("/detect", { source }, signal); // the likeliest of this server
  const add = warning => say(`${warning} ${$("status").textContent}`, true);
  if (language !== chosen.code && probability > 0.8) add(`This text seems to be ${nameFor(language)}, not ${chosen.name}.`);
  if (probability < 0.2) add(`This text does not seem to be ${chosen.name}.`);
}

// Shows no translation, because that of another text would be wrong.
function clear() {
  Object.assign(state, { sentences: [], selected: null, text: "" });
  if (!$("source").value) say("");
  draw();
}

// Finds where each sentence lies in the source text.
function locate(source) {
  let from = 0;
  for (const sentence of state.sentences) {
    const start = source.indexOf(sentence.source, from);
    sentence.start = start;
    if (start >= 0) from = start + sentence.source.length;
  }
}

// Finds what stands before each translation in the text, and behind the last one.
function divide() {
  let from = 0;
  for (const sentence of state.sentences) {
    const start = state.text.indexOf(textOf(sentence), from);
    if (start < 0) { // such as in a message of a program, whose apostrophes are escaped: only its text can be shown
      Object.assign(state, { sentences: [], tail: "" });
      return;
    }
    sentence.before = state.text.slice(from, start);
    from = start + textOf(sentence).length;
  }
  state.tail = state.text.slice(from);
}

const shownText = () => state.sentences.length ? state.sentences.map(each => each.before + textOf(each)).join("") + state.tail : state.text;

// The probability of each word: the product over its pieces. Words that the model has not written have none, nor have
// sentences in parts, where log P of the ends of the parts lie between those of pieces.
function probabilities({ segments, words, pieces, log_probs: logProbs }) {
  const products = segments.map(() => null);
  if (logProbs.length !== pieces.length + 1) return products;
  words.forEach((word, piece) => { if (word >= 0) products[word] = (products[word] ?? 1) * Math.exp(logProbs[piece]); });
  return products;
}

// The term of the glossary that each word belongs to, if any.
function termsOf({ text, segments, terms = [] }) {
  const begins = hasSpaces() ? "(?<![\\p{L}\\p{M}\\p{N}_])" : "";
  const spans = terms.filter(({ used }) => used).flatMap(({ source, used }) => {
    const escaped = used.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
    return [...text.matchAll(new RegExp(begins + escaped, "gu"))].map(({ index }) => ({ source, start: index, stop: index + used.length }));
  });
  let end = 0;
  return segments.map(segment => {
    const start = end;
    end += segment.length;
    return spans.find(span => span.start < end && start < span.stop);
  });
}

const DOUBTS = { terms: "terms of the glossary do not fit", "missing terms": "terms of the glossary are missing", "missing numbers": "numbers are missing", "much shorter": "much may be missing", "one or two words": "one or two words have no context" };
// Why a translation is doubtful whatever its confidence. As in documents, one or two words are.
function doubtsOf({ source, hypotheses, chosen }) {
  const { doubts = [], origin, confidence } = hypotheses[chosen], hasWords = state.languages.get(state.pair.source_lang)?.spaces;
  const isShort = hasWords && !origin && confidence != null && source.trim().split(/\s+/).length < 3 && /\p{L}/u.test(source);
  return isShort ? [...doubts, "one or two words"] : doubts;
}
// Which sentences are doubtful, and why, if there is more to say than that their confidence is low.
function doubtsInWords() {
  const doubts = state.sentences.flatMap(doubtsOf);
  const counts = [...new Set(doubts)].map(doubt => `${DOUBTS[doubt]} in ${doubts.filter(each => each === doubt).length}`);
  const isMarked = state.sentences.some(sentence => isDoubtful(sentence.hypotheses[sentence.chosen].confidence, doubtsOf(sentence)));
  return isMarked ? `Check the marked sentences first${counts.length ? `: ${counts.join(", ")}` : ""}.` : "";
}
const isDoubtful = (confidence, doubts) => doubts.length > 0 || confidence < DOUBTFUL; // there may be no confidence
const whyDoubtful = doubts => doubts.map(doubt => DOUBTS[doubt] ?? doubt).join(", ");
const nameFor = code => state.languages.get(code)?.name ?? code;
const spacesBefore = segment => segment.slice(0, segment.length - segment.trimStart().length);
const links = hypothesis => (hypothesis.alignment ?? "").split(" ").filter(Boolean).map(link => link.split("-").map(Number));
const scoreOf = ({ score, confidence }) => `score ${score.toFixed(2)}` + (confidence == null ? "" : `, confidence ${percent(confidence)}`);
const percent = p => p >= 0.995 ? "100 %" : p < 0.001 ? "< 0.1 %" : `${+(100 * p).toPrecision(p < 0.1 ? 1 : 2)} %`;

function draw() {
  const place = $("translation");
  place.replaceChildren(state.sentences.length ? "" : state.text);
  for (const sentence of state.sentences) {
    const shownSentence = sentence.element = drawSentence(sentence), { confidence } = sentence.hypotheses[sentence.chosen], doubts = doubtsOf(sentence);
    if (isDoubtful(confidence, doubts)) {
      shownSentence.classList.add("in-doubt");
      shownSentence.title = doubts.length ? `Check this sentence: ${whyDoubtful(doubts)}` : `Probably not a good translation: confidence ${percent(confidence)}`;
    }
    place.append(sentence.before, sentence.form ?? shownSentence, ...correctionButtons(sentence, shownSentence));
  }
  if (state.sentences.length) place.append(state.tail);
  for (const item of $("legend").children) item.hidden = !place.querySelector(`.${item.dataset.of}`);
  $("copy").textContent = "Copy";
  $("copy").disabled = !state.text;
  drawDetails();
  highlight(null);
}

// Words are one stop of the Tab key in each sentence; the arrow keys move between them.
function neighbour(word, key) {
  const steps = { ArrowRight: 1, ArrowLeft: -1 }, words = [...$("translation").querySelectorAll(".word")];
  const forwards = getComputedStyle(word).direction === "rtl" ? -1 : 1;
  return words[words.indexOf(word) + forwards * steps[key]];
}

function drawSentence(sentence) {
  const hypothesis = sentence.hypotheses[sentence.chosen];
  if (hypothesis.origin) return drawFromMemory(sentence, hypothesis);
  if (!hypothesis.segments) return make("span", { className: "sentence", textContent: hypothesis.text });
  const wordProbabilities = probabilities(hypothesis), terms = termsOf(hypothesis);
  const made = make("span", { className: "sentence" });
  hypothesis.segments.forEach((segment, index) => {
    const p = wordProbabilities[index], text = segment.trim(), term = terms[index];
    const title = term ? `Term of the glossary for “${term.source}”` : p === null ? "" : `Probability ${percent(p)}`;
    const word = make("span", { className: "word", tabIndex: index ? -1 : 0, textContent: text, title });
    word.setAttribute("role", "button");
    word.classList.toggle("term", Boolean(term));
    const isJudged = !term && p !== null;
    word.classList.toggle("unsure", isJudged && p < 0.5 && p >= 0.2);
    word.classList.toggle("doubtful", isJudged && p < 0.2);
    const open = () => shown(() => openAlternatives(sentence, index, word));
    word.addEventListener("click", open);
    word.addEventListener("keydown", event => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); }
      neighbour(word, event.key)?.focus();
    });
    // While a list is open, the words that its word is aligned to stay marked.
    const mark = (...chosen) => { if (!state.word) highlight(...chosen); };
    for (const name of ["pointerenter", "focus"]) word.addEventListener(name, () => mark(sentence, index));
    for (const name of ["pointerleave", "blur"]) word.addEventListener(name, () => mark(null));
    made.append(spacesBefore(segment), word);
  });
  return made;
}

function drawFromMemory(sentence, { text, origin }) {
  const title = `From the ${origin}.${origin === "memory" ? " Click to see its sentence." : ""}`;
  const button = make("span", { className: "sentence from-memory", tabIndex: 0, textContent: text, title });
  button.setAttribute("role", "button");
  button.addEventListener("click", () => { state.selected = sentence; drawDetails(); });
  button.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); button.click(); }
  });
  return button;
}

// A similar sentence of the memory: what only it has is deleted, and what only the source text has is inserted.
function drawMatch({ target, score, difference }) {
  const edits = difference.map(([sign, textContent]) => make({ "=": "span", "-": "del", "+": "ins" }[sign], { textContent }));
  return make("li", {}, make("span", { className: "muted", textContent: `${Math.round(100 * score)} % ` }), ...edits, make("br"), make("bdi", { textContent: target }));
}

// Marks the source words that a word of a translation is aligned to. Alignments know only words between ASCII white space.
function highlight(sentence, target) {
  const text = $("source").value, backdrop = $("backdrop");
  backdrop.replaceChildren();
  if (!sentence || sentence.start < 0 || !hasSpaces()) return;
  const linked = new Set(links(sentence.hypotheses[sentence.chosen]).filter(([, t]) => t === target).map(([s]) => s));
  let index = 0, end = 0;
  for (const word of sentence.source.matchAll(/[^ \t\n\v\f\r]+/g)) {
    if (!linked.has(index++)) continue;
    const start = sentence.start + word.index;
    backdrop.append(text.slice(end, start), make("mark", { textContent: word[0] }));
    end = start + word[0].length;
  }
  backdrop.append(text.slice(end) + "\n");
  backdrop.scrollTop = $("source").scrollTop;
}

async function openAlternatives(sentence, index, element) {
  state.selected = sentence;
  drawDetails();
  closeAlternatives();
  const { segments } = sentence.hypotheses[sentence.chosen], text = segments[index].trim();
  const prefix = segments.slice(0, index).join("") + spacesBefore(segments[index]); // behind a space, only new words are listed
  state.word = element;
  element.setAttribute("aria-expanded", true);
  highlight(sentence, index);
  const answer = await call("/alternatives", { source: sentence.source, prefix, model: state.path[0], ...state.pair })
    .catch(error => { closeAlternatives(); throw error; });
  if (state.word !== element) return;
  const box = $("alternatives"), place = element.getBoundingClientRect();
  const typed = make("input", { value: text });
  typed.addEventListener("keydown", event => {
    if (event.key === "Enter" && !event.isComposing) choose(sentence, index, `${prefix}${typed.value}`.trim());
  });
  const ranked = answer.alternatives.sort((a, b) => b.log_prob - a.log_prob);
  box.replaceChildren(...ranked.map(alternative => {
    const button = make("button", { className: alternative.word === text ? "chosen" : "", title: alternative.text },
      make("bdi", { textContent: alternative.word }), make("span", { className: "muted", textContent: percent(Math.exp(alternative.log_prob)) }));
    button.addEventListener("click", () => choose(sentence, index, alternative.prefix));
    return button;
  }), make("label", { className: "muted" }, "Your own word", typed));
  box.hidden = false;
  box.dir = getComputedStyle(element).direction;
  const left = box.dir === "rtl" ? place.right - box.offsetWidth : place.left;
  box.style.left = `${Math.max(12, Math.min(left, innerWidth - box.offsetWidth - 12)) + scrollX}px`;
  box.style.top = `${place.bottom + 4 + scrollY}px`;
  box.querySelector("button, input").focus({ preventScroll: true });
}

function closeAlternatives() {
  $("alternatives").hidden = true;
  state.word?.removeAttribute("aria-expanded");
  state.word = null;
  highlight(null);
}

// Keeps everything up to the chosen word, and translates the rest anew.
async function choose(sentence, index, prefix) {
  closeAlternatives();
  await shown(async () => {
    await translateAgain(sentence, prefix);
    say(`The beginning “${prefix}” is kept.`);
    draw();
    sentence.element.querySelectorAll(".word")[index]?.focus();
  });
}

async function translateAgain(sentence, prefix) {
  const body = { source: sentence.source, prefix, split: false, ...options() };
  const answer = await call("/translate", body, state.request.signal);
  const [{ hypotheses, memory }] = answer.translations[0].sentences;
  Object.assign(sentence, { hypotheses, memory, chosen: 0 });
}

function drawDetails() {
  const sentence = state.selected;
  $("hypotheses").hidden = $("timing").hidden = !sentence;
  $("show-attention").hidden = !sentence || !state.hasAttention || state.path.length > 1;
  $("similar").hidden = !sentence?.memory?.length;
  if (!sentence) return;
  $("n-best").replaceChildren(...sentence.hypotheses.map((hypothesis, index) => {
    const button = make("button", {}, make("bdi", { textContent: hypothesis.text }), " ", make("span", { className: "muted", textContent: hypothesis.origin ? `from the ${hypothesis.origin}` : scoreOf(hypothesis) }));
    button.setAttribute("aria-pressed", index === sentence.chosen);
    button.addEventListener("click", () => {
      sentence.chosen = index;
      draw();
      $("n-best").querySelectorAll("button")[index].focus(); // `draw` makes the list anew
    });
    return make("li", {}, button);
  }));
  $("matches").replaceChildren(...(sentence.memory ?? []).map(drawMatch));
}

async function showAttention() {
  const { source, hypotheses, chosen } = state.selected;
  window.attentionData = await call("/attention", { source, target: hypotheses[chosen].text, model: state.path[0], ...state.pair });
  $("attention").querySelector("iframe").src = "/static/attention.html";
  $("attention").showModal();
}

// Suggests sentences as long as there is no text.
function showExamples() {
  const texts = state.examples[chosenPair()?.models[0]] ?? [];
  $("examples").hidden = !texts.length || Boolean($("source").value);
  $("examples").replaceChildren("Try: ", ...texts.map(text => {
    const button = make("button", { textContent: text, dir: "auto" });
    button.addEventListener("click", () => { $("source").value = text; $("source").focus(); translate(); });
    return button;
  }));
}

// The selection is copied as plain text, without the underlines of words. A page without TLS has no other way to copy.
function copy() {
  getSelection().selectAllChildren($("translation"));
  state.isWhole = true;
  if (document.execCommand("copy")) $("copy").textContent = "Copied";
  state.isWhole = false;
  getSelection().removeAllRanges();
}

async function start() {
  const server = await call("/models");
  const languages = server.languages.map(each => ({ ...each, shown: nameOf(each) }));
  languages.sort((a, b) => a.shown.localeCompare(b.shown));
  state.languages = new Map(languages.map(each => [each.code, each]));
  const examples = Object.fromEntries(server.models.map(model => [model.name, model.examples]));
  Object.assign(state, { directions: server.directions, hasAttention: server.attention, examples });
  $("access").hidden = true;
  document.body.classList.remove("locked");
  $("beam").max = server.max_beam;
  $("beam").value = Math.min($("beam").value, server.max_beam);
  fillLanguages();
  showLanguages();
  showFormats(server);
  await showCorrections(server);
  $("glossaries").hidden = !server.glossaries.length;
  fill($("glossary"), [["", "none"], ...server.glossaries.map(name => [name, name])]);
  $("memories").hidden = !server.memories.length;
  fill($("memory"), [["", "none"], ...server.memories.map(name => [name, name])]);
  const isOnlyPair = state.directions.length === 1 && isSingle(state.directions[0]); // a memory is of one pair
  for (const [id, names] of [["glossary", server.glossaries], ["memory", isOnlyPair ? server.memories : []]]) if (names.length === 1) $(id).value = names[0];
  if ($("source").value) translate();
}

$("source").addEventListener("input", () => {
  $("backdrop").replaceChildren();
  later(translate);
});
$("source").addEventListener("scroll", () => { $("backdrop").scrollTop = $("source").scrollTop; });
for (const id of ["from", "to"]) {
  $(id).addEventListener("change", chooseLanguages);
  $(id).addEventListener("blur", () => { remember(id); fillLanguages(); }); // while it has the focus, its order stays
  $(`find-${id}`).addEventListener("input", () => { fillLanguages(); later(chooseLanguages); });
  $(`find-${id}`).addEventListener("keydown", event => { if (event.key === "Enter" && !event.isComposing) { remember(id); chooseLanguages(); } });
}
$("model").addEventListener("change", translate);
$("beam").addEventListener("change", translate);
for (const id of ["glossary", "memory"]) $(id).addEventListener("change", translate);
$("swap").addEventListener("click", swap);
$("copy").addEventListener("click", copy);
$("translation").addEventListener("copy", event => {
  event.preventDefault();
  event.clipboardData.setData("text/plain", state.isWhole ? shownText() : String(getSelection()));
});
$("show-attention").addEventListener("click", () => shown(showAttention));
$("close-attention").addEventListener("click", () => $("attention").close());
$("access").addEventListener("submit", event => {
  event.preventDefault();
  state.token = $("token").value.trim();
  if (!/^[!-~]+$/.test(state.token)) return lock(true); // a browser cannot send other characters
  try { sessionStorage.setItem("token", state.token); } catch { /* a browser may refuse to store it */ }
  say("");
  shown(start);
});
document.addEventListener("keydown", event => {
  if (event.key !== "Escape" || $("alternatives").hidden) return;
  const { word } = state;
  closeAlternatives();
  word.focus({ preventScroll: true });
});
document.addEventListener("pointerdown", event => {
  if (!$("alternatives").hidden && !$("alternatives").contains(event.target)) closeAlternatives();
});
