"use strict";
// Shows the routes of /openapi.json, and the fields of their requests and answers.
function resolved(schema, all) {
  return schema?.$ref ? all[schema.$ref.split("/").pop()] : schema;
}

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.type === "array") return `list of ${typeOf(schema.items ?? {})}`;
  return schema.type ?? "any";
}

// Text in which backquotes set code.
const withCode = (text = "") => text.split("`").map((part, i) => i % 2 ? make("code", { textContent: part }) : part);

function fields(schema) {
  const cell = (label, ...children) => {
    const made = make("td", {}, ...children);
    made.dataset.label = label; // a phone shows it before the cell
    return made;
  };
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) => make("tr", {},
    cell("", make("code", { textContent: name })), cell("type", typeOf(field)),
    cell("default", (schema.required ?? []).includes(name) ? "required" : JSON.stringify(field.default ?? null)),
    cell("", ...withCode(field.description))));
  const head = make("tr", {}, ...["field", "type", "default", ""].map(text => make("th", { textContent: text })));
  return make("table", { className: "stacked" }, head, ...rows);
}

function described(title, name, schema) {
  return make("details", { open: title === "Request" }, make("summary", { textContent: `${title}: ${name}` }), fields(schema));
}

function route(method, path, described_, all) {
  const made = make("section", {}, make("h2", { textContent: `${method.toUpperCase()} ${path}` }),
    make("p", {}, ...withCode(described_.description)));
  // A body may be JSON or a form; both have the same fields, or a form has those of another protocol.
  const bodies = Object.values(described_.requestBody?.content ?? {}).map(({ schema }) => schema)
    .filter(schema => schema.format !== "binary");
  const requests = new Map(bodies.map(schema => [schema.title ?? typeOf(schema), resolved(schema, all)]));
  for (const [name, schema] of requests) made.append(described("Request", name, schema));
  const asked = (described_.parameters ?? []).filter(field => field.in === "query");
  if (asked.length) made.append(described("Request", "in the address", {
    properties: Object.fromEntries(asked.map(field => [field.name, { description: field.description, ...field.schema }])),
    required: asked.filter(field => field.required).map(field => field.name),
  }));
  const answer = described_.responses["200"]?.content?.["application/json"]?.schema;
  if (answer?.$ref) made.append(described("Answer", typeOf(answer), resolved(answer, all)));
  return made;
}

async function start() {
  const api = await (await fetch("/openapi.json")).json();
  const all = api.components.schemas, place = $("routes");
  for (const [path, methods] of Object.entries(api.paths))
    for (const [method, operation] of Object.entries(methods)) place.append(route(method, path, operation, all));
  place.append(make("h2", { textContent: "Parts of requests and answers" }));
  for (const [name, schema] of Object.entries(all))
    if (!/Body$|Answer$|Error$/.test(name)) place.append(described("Object", name, schema));
}
start();
