"use strict";
// Corrections on the page of nmt serve: a person edits the translation of a sentence, and the server keeps it.
const LISTED = 100;
const corrections = { isOn: false, kept: [] }; // the latest first

const textOf = sentence => sentence.hypotheses[sentence.chosen].text;
const isOfPair = ({ source_lang: source, target_lang: target }) =>
  source === state.pair.source_lang && target === state.pair.target_lang;
// The correction that a sentence on the page has its translation from. It has no tags, such as <bt>, before its source.
const keptFor = sentence =>
  corrections.kept.find(each => (each.source === sentence.source || sentence.source.endsWith(`> ${each.source}`)) && each.target === textOf(sentence) && isOfPair(each));

async function showCorrections({ corrections: isOn }) {
  corrections.isOn = isOn;
  $("corrections").hidden = !isOn;
  if (isOn) await listCorrections();
}

async function listCorrections() {
  const { corrections: latest, total } = await call(`/corrections?limit=${LISTED}`);
  corrections.kept = latest;
  $("download-corrections").hidden = !total;
  $("kept-count").textContent = total > latest.length ? `The latest ${latest.length} of ${total}:` : "";
  $("kept").replaceChildren(...latest.map(each => {
    const button = make("button", { textContent: "Take back", ariaLabel: `Take back: ${each.target}` });
    button.addEventListener("click", () => takeBack(each));
    const about = `${each.source_lang} → ${each.target_lang}, ${new Date(each.time).toLocaleString()}`;
    return make("li", {},
      make("span", { textContent: each.source, lang: each.source_lang, dir: "auto" }),
      make("span", { className: "kept", textContent: each.target, lang: each.target_lang, dir: "auto" }),
      make("span", { className: "muted", textContent: about }), button);
  }));
}

// The buttons behind a sentence. Styles give them their signs, so that the text of the translation stays as it is.
function correctionButtons(sentence, shownSentence) {
  if (!corrections.isOn || sentence.form) return [];
  const record = keptFor(sentence);
  shownSentence.classList.toggle("kept", Boolean(record));
  const button = (className, title, work) => {
    const sign = make("button", { className: `sign ${className}`, title, ariaLabel: title });
    sign.addEventListener("click", work);
    return sign;
  };
  sentence.edit = button("edit", "Correct this translation", () => editSentence(sentence));
  return record ? [sentence.edit, button("undo", "Kept; take it back", () => takeBack(record))] : [sentence.edit];
}

// The form is that of the sentence until it is left, so that other changes of the text keep what is typed.
function editSentence(sentence) {
  sentence.form = correctionForm(sentence, textOf(sentence));
  draw();
  sentence.form.querySelector("textarea").focus();
}

// Whether most of a text is still there, at its beginning and its end.
function isEdited(before, after) {
  const longest = Math.max(before.length, after.length), shortest = Math.min(before.length, after.length);
  let begin = 0, end = 0;
  while (begin < shortest && before[begin] === after[begin]) begin++;
  while (end < shortest - begin && before.at(-1 - end) === after.at(-1 - end)) end++;
  return 2 * (begin + end) >= longest;
}

// Gives sentences the open forms of those that they replace: of the same source, or else edited in the same place.
function moveForms(previous) {
  const isAsLong = previous.length === state.sentences.length;
  previous.forEach(({ source, form }, index) => {
    if (!form) return;
    const inPlace = isAsLong && isEdited(source, state.sentences[index].source) && state.sentences[index];
    const sentence = [inPlace, ...state.sentences].find(each => each && !each.form && each.source === source) ?? (!inPlace.form && inPlace);
    if (sentence) sentence.form = correctionForm(sentence, form.querySelector("textarea").value);
  });
}

function correctionForm(sentence, text) {
  const field = make("textarea", { value: text, rows: 3, dir: "auto", ariaLabel: "Corrected translation" });
  const cancel = make("button", { type: "button", textContent: "Cancel" });
  const form = make("form", { className: "correction" }, field, make("button", { textContent: "Keep" }), cancel);
  const leave = () => { sentence.form = null; draw(); sentence.edit.focus(); };
  form.addEventListener("submit", event => { event.preventDefault(); keep(sentence, field.value); });
  cancel.addEventListener("click", leave);
  field.addEventListener("keydown", event => {
    if (event.isComposing) return; // Enter ends the input of a word
    if (event.key === "Enter") { event.preventDefault(); form.requestSubmit(); }
    if (event.key === "Escape") leave();
  });
  return form;
}

async function keep(sentence, text) {
  const record = keptFor(sentence), machineTranslation = record ? record.machine_translation ?? "" : textOf(sentence);
  const target = text.replace(/[\r\n]+/g, " ").trim(), machine = { machine_translation: machineTranslation, ...state.pair };
  const done = await shown(async () => {
    const record = await call("/corrections", { source: sentence.source, target, ...machine });
    await listCorrections();
    return record;
  });
  if (!done) return; // the text is still in its field
  Object.assign(sentence, { hypotheses: [{ text: done.target, origin: "memory" }], chosen: 0, form: null });
  say("The correction is kept: this sentence is translated like this from now on, in documents if the whole sentence has one format.");
  draw();
  sentence.edit.focus();
}

async function takeBack(record) {
  if (!confirm(`Take back this correction, for all who use this page?\n\n${record.target}`)) return;
  const sentences = state.sentences.filter(each => keptFor(each)?.id === record.id);
  await shown(async () => {
    await send(`/corrections/${record.id}`, { method: "DELETE" });
    await listCorrections();
    say("The correction is taken back.");
    for (const sentence of sentences) await translateAgain(sentence, "");
    draw();
  });
}

async function downloadCorrections() {
  const href = URL.createObjectURL(await (await send("/corrections.tmx", {})).blob());
  make("a", { href, download: "corrections.tmx" }).click();
  setTimeout(() => URL.revokeObjectURL(href));
}

$("download-corrections").addEventListener("click", () => shown(downloadCorrections));
