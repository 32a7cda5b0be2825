"use strict";
// The lists of languages on the page of nmt serve.
// The name of a language in English, and in the language itself if the browser knows it.
function nameOf({ code, name }) {
  try {
    const [locale] = Intl.DisplayNames.supportedLocalesOf([code]);
    const own = locale ? new Intl.DisplayNames([locale], { type: "language" }).of(code) : name;
    return own.toLowerCase() === name.toLowerCase() ? name : `${name} (${own})`;
  } catch {
    return name;
  }
}

// The languages that the browser has stored. It may refuse to store any, or have what another program has stored.
function stored(id) {
  try {
    const codes = JSON.parse(localStorage.getItem(`nmt-${id}`));
    return Array.isArray(codes) ? codes : null;
  } catch {
    return null;
  }
}

// What a person has chosen lately, or probably will, the latest first.
function recent(id) {
  const likely = id === "from" ? [DETECT] : [...navigator.languages.map(tag => tag.split("-")[0]), "en"];
  return stored(id) ?? (state.languages.size > MANY ? likely : []);
}

function remember(id) {
  $(`find-${id}`).value = "";
  const codes = [...new Set([$(id).value, ...recent(id)])].slice(0, RECENT);
  try { localStorage.setItem(`nmt-${id}`, JSON.stringify(codes)); } catch { /* see `stored` */ }
}

// Fills a list, and keeps the choice if it is still there.
function fill(list, entries) {
  const chosen = list.value;
  list.replaceChildren(...entries.map(([value, textContent]) => make("option", { value, textContent })));
  if (entries.some(([value]) => value === chosen)) list.value = chosen;
}

// Fills a list with the languages that match the search, or all if none does. Recent ones come first.
function fillWith(id, languages) {
  const first = [...new Set(recent(id))].filter(code => languages.includes(code)), typed = $(`find-${id}`).value.trim().toLowerCase();
  const entries = [...new Set([...first, ...languages])].map(code => [code, state.languages.get(code)?.shown ?? "Detect language"]);
  const matching = entries.filter(([code, name]) => code.toLowerCase() === typed || name.toLowerCase().includes(typed));
  const isNew = !$(id).length;
  fill($(id), matching.length ? matching : entries);
  const { source_langs: [source], target_langs: [target] } = state.directions[0];
  const chosen = first[0] ?? { from: source, to: target }[id];
  if (isNew && entries.some(([code]) => code === chosen)) $(id).value = chosen;
  $(`find-${id}`).hidden = languages.length <= MANY;
}

function fillLanguages() {
  const languages = [...state.languages.keys()];
  const sources = languages.filter(code => state.directions.some(each => each.source_langs.includes(code)));
  const isDetected = sources.length > 1 && sources.some(code => state.languages.get(code).identified);
  fillWith("from", isDetected ? [...sources, DETECT] : sources);
  const source = $("from").value;
  fillWith("to", languages.filter(code => state.directions.some(each =>
    source === DETECT ? each.target_langs.includes(code) : between(source, code).includes(each))));
  const others = sources.map(code => state.languages.get(code)).filter(({ identified }) => !identified);
  $("undetected").hidden = source !== DETECT || !others.length;
  $("undetected").open = others.length < 4; // a model may have hundreds
  $("undetected").querySelector("p").textContent = others.map(({ shown }) => shown).join(", ");
}

// Shows the languages of the text and of the translation, and the models between them.
function showLanguages() {
  const source = sourceLang(), target = $("to").value, pairs = between(source, target);
  $("source-lang").textContent = !source ? "Detect language" : $("from").value === DETECT ? `${nameFor(source)} (detected)` : nameFor(source);
  $("target-lang").textContent = nameFor(target);
  $("pair").textContent = `${nameFor(source)} → ${nameFor(target)}`;
  $("translation").lang = target;
  $("source").lang = source ?? "";
  $("swap").hidden = !between(target, source).length;
  $("languages").hidden = state.directions.length < 2 && state.directions.every(isSingle);
  $("pair").hidden = !$("languages").hidden;
  $("models").hidden = pairs.length < 2;
  fill($("model"), pairs.map(({ models }) => [models.join(", "), models.join(", ")]));
  showExamples();
}

function chooseLanguages() {
  state.detected = null;
  fillLanguages();
  showLanguages();
  translate();
}

function swap() {
  const text = shownText(), source = sourceLang(), target = $("to").value;
  for (const id of ["from", "to"]) remember(id);
  fillLanguages();
  $("from").value = target;
  fillLanguages();
  $("to").value = source;
  $("source").value = text || $("source").value;
  chooseLanguages();
}
