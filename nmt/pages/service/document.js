"use strict";
// The document on the page of nmt serve: it is uploaded, translated, and then in the memory of the page.
const POLL_MS = 500, LOST_MS = 5 * 60_000; // between questions, and until a server that does not answer is given up
const KINDS = { docx: "Word", html: "HTML", md: "Markdown", txt: "plain text", srt: "subtitles", po: "PO", xlf: "XLIFF", json: "JSON" };
const upload = { stop: null, id: null, address: null, isUnsaved: false, file: null, most: 0, documents: [] };

function sayOfFile(isError, ...message) {
  $("file-status").replaceChildren(...message);
  $("file-status").classList.toggle("error", isError);
}

const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

function showFormats({ documents, max_document_mib: most, directions, glossaries, memories }) {
  $("documents").hidden = !documents.length;
  $("file").accept = documents.map(end => `.${end}`).join();
  const kinds = Object.keys(KINDS).filter(end => documents.includes(end)).map(end => KINDS[end]);
  const formats = new Intl.ListFormat("en", { type: "disjunction" }).format(kinds);
  $("formats").textContent = `${formats}, at most ${most} MiB.`;
  const chosen = [directions.length > 1 && "languages", glossaries.length && "glossary", memories.length && "memory"].filter(Boolean);
  if (chosen.length) $("formats").textContent += ` It is translated with the ${new Intl.ListFormat("en").format(chosen)} chosen above.`;
  $("formats").title = documents.map(end => `*.${end}`).join(", ");
  Object.assign(upload, { most, documents });
}

function showProgress({ state, sentences, done }) {
  const bar = $("progress").querySelector("progress");
  if (sentences) Object.assign(bar, { max: sentences, value: done });
  else bar.removeAttribute("value");
  $("progress").querySelector("span").textContent = state === "translating" ? `${done} of ${sentences} sentences` : state;
}

// Stops the translation of a document, and deletes it on the server.
function stopDocument() {
  upload.stop?.abort();
  if (upload.id) send(`/documents/${upload.id}`, { method: "DELETE", keepalive: true }).catch(() => {});
  upload.id = null;
  $("progress").hidden = true;
}

async function translateDocument(file) {
  stopDocument();
  Object.assign(upload, { file, isUnsaved: false });
  sayOfFile(false);
  $("doubts").hidden = true;
  const { signal } = upload.stop = new AbortController();
  const isDetected = $("from").value === DETECT, models = isDetected ? [] : chosenPair()?.models ?? [];
  const languages = { source_lang: isDetected ? "auto" : $("from").value, target_lang: $("to").value };
  $("progress").hidden = false;
  showProgress({ state: "uploading" });
  try {
    if (!upload.documents.includes(file.name.split(".").pop().toLowerCase())) throw new Error(`${file.name} has a format that cannot be translated; give *.${upload.documents.join(", *.")}.`);
    await file.slice(0, 1).arrayBuffer().catch(() => { throw new Error(`${file.name} has changed or is gone; choose it again.`); });
    if (file.size > upload.most * 2 ** 20) throw new Error(`${file.name} has more than ${upload.most} MiB.`);
    const chosen = { ...languages, ...(models.length === 1 ? { model: models[0] } : {}) };
    const marks = $("mark-doubtful").checked ? { doubtful: DOUBTFUL } : {};
    const path = `/documents?${new URLSearchParams({ name: file.name, ...chosen, ...terms(models), ...marks })}`;
    const { id } = await (await send(path, { method: "POST", body: file, signal })).json();
    upload.id = id;
    await download(id, signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    stopDocument(); // the server may still work on it
    sayOfFile(true, error.message);
  }
  upload.id = null;
  $("progress").hidden = true;
}

// Waits until a document is translated, and offers it. The server then has it no more.
async function download(id, signal) {
  let job, answer, answered = performance.now();
  while (!answer) {
    try {
      job = await call(`/documents/${id}`, undefined, signal);
      if (job.state === "done" && !job.error) answer = await send(`/documents/${id}/result`, { signal });
      answered = performance.now();
    } catch (error) { // such as a network that is away for a moment
      if (error.name === "AbortError" || error.status < 500 || performance.now() - answered > LOST_MS) throw error;
      job = { state: "waiting for the server" };
    }
    if (job.error) throw new Error(job.error);
    if (answer) break;
    showProgress(job);
    await new Promise(resume => setTimeout(resume, POLL_MS));
  }
  const [, encoded, plain] = answer.headers.get("Content-Disposition").match(/filename(?:\*=UTF-8''(.*)|="(.*)")/);
  if (upload.address) URL.revokeObjectURL(upload.address);
  upload.address = URL.createObjectURL(await answer.blob());
  const name = plain ?? decodeURIComponent(encoded);
  const link = make("a", { className: "button", href: upload.address, download: name, textContent: `Download ${name}` });
  link.addEventListener("click", () => { upload.isUnsaved = false; });
  upload.isUnsaved = true; // the server has it no more
  sayOfFile(false, link, make("br"), outcome(job));
}

// Says what a document became, and lists its doubtful sentences.
function outcome({ sentences, from_memory: known = 0, terms = 0, left = "", least_confident: ranked = [] }) {
  const doubtful = ranked.filter(({ confidence, doubts = [] }) => isDoubtful(confidence, doubts));
  $("doubts").hidden = !doubtful.length;
  $("doubts").querySelector("ol").replaceChildren(...doubtful.map(({ source, target, confidence, doubts = [] }) => make("li", {},
    make("bdi", { textContent: source }), make("br"), make("bdi", { className: "in-doubt", textContent: target }),
    make("span", { className: "muted", textContent: doubts.length ? ` ${whyDoubtful(doubts)}` : ` confidence ${percent(confidence)}` }))));
  const parts = [counted(sentences, "different sentence"), known && `${known} from the memory or corrections`,
    terms && `terms of the glossary used ${terms === 1 ? "once" : `${terms.toLocaleString("en")} times`}`, doubtful.length && `${counted(doubtful.length, "doubtful sentence")}`];
  const kept = left && ` Left as they are: ${left}.`;
  if (!sentences) return `Nothing is translated: the file has no text, or is in this language already.${kept}`;
  return `${parts.filter(Boolean).join(", ")}. Read the others, too: a sentence may be wrong without a sign.${kept}`;
}

$("file").addEventListener("change", () => { if ($("file").files.length) translateDocument($("file").files[0]); });
$("mark-doubtful").addEventListener("change", () => { if (upload.file) translateDocument(upload.file); });
$("file").addEventListener("click", () => { $("file").value = ""; }); // so that the same file can be chosen again
$("stop").addEventListener("click", stopDocument);
addEventListener("beforeunload", event => { if (upload.id || upload.isUnsaved) event.preventDefault(); }); // the browser asks
addEventListener("pagehide", stopDocument);
for (const name of ["dragover", "dragleave", "drop"]) $("drop").addEventListener(name, event => {
  event.preventDefault();
  $("drop").classList.toggle("over", name === "dragover");
  if (name === "drop" && event.dataTransfer.files.length) translateDocument(event.dataTransfer.files[0]);
});
shown(start);
