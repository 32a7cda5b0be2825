"use strict";
// The document on the page of nmt serve: it is uploaded, translated, and then in the memory of the page.
const POLL_MS = 500;
const upload = { stop: null, id: null, address: null, most: 0 };

function sayOfFile(isError, ...message) {
  $("file-status").replaceChildren(...message);
  $("file-status").classList.toggle("error", isError);
}

function showFormats({ documents, max_document_mib: most }) {
  $("documents").hidden = !documents.length;
  $("file").accept = documents.map(end => `.${end}`).join();
  $("formats").textContent = `It may be ${documents.map(end => `*.${end}`).join(", ")} of at most ${most} MiB.`;
  upload.most = most;
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
  sayOfFile(false);
  const { signal } = upload.stop = new AbortController();
  const isDetected = $("from").value === DETECT, models = isDetected ? [] : chosenPair()?.models ?? [];
  const languages = { source_lang: isDetected ? "auto" : $("from").value, target_lang: $("to").value };
  $("progress").hidden = false;
  showProgress({ state: "uploading" });
  try {
    if (file.size > upload.most * 2 ** 20) throw new Error(`${file.name} has more than ${upload.most} MiB.`);
    const chosen = { ...languages, ...(models.length === 1 ? { model: models[0] } : {}) };
    const path = `/documents?${new URLSearchParams({ name: file.name, ...chosen, ...terms(models) })}`;
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
  let found;
  while ((found = await call(`/documents/${id}`, undefined, signal)).state !== "done") {
    if (found.error) throw new Error(found.error);
    showProgress(found);
    await new Promise(resume => setTimeout(resume, POLL_MS));
  }
  const answer = await send(`/documents/${id}/result`, { signal });
  const [, encoded, plain] = answer.headers.get("Content-Disposition").match(/filename(?:\*=UTF-8''(.*)|="(.*)")/);
  if (upload.address) URL.revokeObjectURL(upload.address);
  upload.address = URL.createObjectURL(await answer.blob());
  const name = plain ?? decodeURIComponent(encoded);
  sayOfFile(false, make("a", { href: upload.address, download: name, textContent: `Download ${name}` }));
}

$("file").addEventListener("change", () => { if ($("file").files.length) translateDocument($("file").files[0]); });
$("file").addEventListener("click", () => { $("file").value = ""; }); // so that the same file can be chosen again
$("stop").addEventListener("click", stopDocument);
addEventListener("pagehide", stopDocument);
for (const name of ["dragover", "dragleave", "drop"]) $("drop").addEventListener(name, event => {
  event.preventDefault();
  $("drop").classList.toggle("over", name === "dragover");
  if (name === "drop" && event.dataTransfer.files.length) translateDocument(event.dataTransfer.files[0]);
});
shown(start);
