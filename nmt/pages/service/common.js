"use strict";
// What the scripts of nmt serve share. All text is set as textContent, so that no text can become HTML.
const $ = id => document.getElementById(id);

function make(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function say(message, isError = false) {
  $("status").textContent = message;
  $("status").classList.toggle("error", isError);
}

// Sends a request with the token. Throws an error with the sentence of an answer that is not ok.
async function send(path, options) {
  const { token } = state, headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch(path, { ...options, headers })
    .catch(error => { throw error.name === "AbortError" ? error : new Error("The server does not answer."); });
  if (answer.ok) return answer;
  if (answer.status === 401) {
    lock(Boolean(token));
    throw new DOMException("The field of the token says what to do.", "AbortError");
  }
  const failure = await answer.json().catch(() => ({ error: `The server answered with status ${answer.status}.` }));
  throw Object.assign(new Error(failure.error), { status: answer.status });
}

// Shows only the field of the token. `isWrong` says whether one was sent.
function lock(isWrong) {
  document.body.classList.add("locked");
  $("access").hidden = false;
  say(isWrong ? "This token is not the one of this server. Ask the person who runs it." : "", isWrong);
  $("token").focus();
}

async function call(path, body, signal) {
  const headers = { "Content-Type": "application/json" }, method = body ? "POST" : "GET";
  return (await send(path, { method, headers, signal, body: body && JSON.stringify(body) })).json();
}

// Runs work whose errors are shown. A request that a newer one replaced is no error.
async function shown(work) {
  try {
    return await work();
  } catch (error) {
    if (error.name !== "AbortError") say(error.message, true);
    return null;
  }
}
