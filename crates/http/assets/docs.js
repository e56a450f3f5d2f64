// The page to try the API: reads /openapi.json and makes of it forms that send real requests.
"use strict";

const METHODS = ["get", "post", "put", "patch", "delete"];
const TOKEN_KEY = "mobimir.token";
const NO_ID = "00000000-0000-0000-0000-000000000000";
const SUGGESTIONS_MAX = 30;
const EXAMPLE_DEPTH_MAX = 6;
const COLOURED_CHARS_MAX = 200_000;

const page = {
  description: null,
  operations: [],
  /** Ids that answers brought, by the name of their field, newest first: what the next call probably is about. */
  seen: new Map(),
};

// ---- Small helpers -------------------------------------------------------------------------------------------------

/** An element: `make("p", { class: "note" }, "text", child)`. Functions become listeners, `null` and `false` nothing. */
function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Text in which `words` between backticks are code. */
function words(text) {
  return text.split(/`([^`]+)`/).map((part, at) => (at % 2 ? make("code", null, part) : part));
}

function paragraphs(text, style) {
  return (text ?? "").split(/\n\s*\n/).filter(Boolean).map((part) => make("p", { class: style }, words(part)));
}

function randomUuid() {
  // randomUUID is there in secure contexts only, and a shop in the local network may not be one.
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

function copyButton(label, text) {
  const button = make("button", { type: "button", class: "plain small" }, label);
  button.addEventListener("click", async () => {
    button.textContent = (await copy(text())) ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = label), 1500);
  });
  return button;
}

function badge(method) {
  return make("span", { class: `method ${method}` }, method.toUpperCase());
}

/** The path, with its parameters set off and places where a narrow screen may break it. */
function pathText(path) {
  const parts = path.split(/(\{[^}]+\})/).map((part) => (part.startsWith("{") ? make("var", null, part) : breakable(part)));
  return make("span", { class: "path" }, ...parts.flat());
}

function breakable(text) {
  const version = text.startsWith("/v1/") ? "/v1".length : 0;
  const first = text.indexOf("/", version + 1);
  const parts = first > 0 ? [text.slice(0, first), ...text.slice(first).split(/(?=\/)/)] : [text];
  return parts.flatMap((part) => (part.startsWith("/v1/") ? [part] : [make("wbr"), part]));
}

// ---- The token -----------------------------------------------------------------------------------------------------

const token = {
  field: document.getElementById("token"),
  note: document.getElementById("token-note"),

  value() {
    return this.field.value.trim();
  },

  use(value, note) {
    this.field.value = value;
    this.changed(note);
  },

  changed(note) {
    try {
      if (this.value()) sessionStorage.setItem(TOKEN_KEY, this.value());
      else sessionStorage.removeItem(TOKEN_KEY);
    } catch {
      // Without storage the token lives as long as the page.
    }
    const standing = this.value() ? "Sent with every call. Kept until this tab is closed." : "No token: only the calls that are for anyone.";
    this.note.textContent = note ?? standing;
    document.dispatchEvent(new Event("token"));
  },

  restore() {
    try {
      this.field.value = sessionStorage.getItem(TOKEN_KEY) ?? "";
    } catch {
      // As above.
    }
    this.changed();
  },
};

async function startGuestSession(button) {
  button.disabled = true;
  try {
    const response = await fetch("/v1/sessions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: "{}",
      credentials: "omit",
    });
    const answer = await response.json();
    if (response.ok) token.use(answer.token, `A guest, until ${new Date(answer.expires_at).toLocaleString("en-GB")}.`);
    else token.note.textContent = `No session: ${answer.detail ?? answer.title}`;
  } catch (error) {
    token.note.textContent = `No session: ${error.message}`;
  } finally {
    button.disabled = false;
  }
}

// ---- Schemas -------------------------------------------------------------------------------------------------------

/** The schema behind a reference, without the "or null" that optional fields carry. */
function resolve(schema) {
  if (!schema) return {};
  if (schema.$ref) {
    const target = schema.$ref.split("/").slice(1).reduce((at, key) => at?.[key], page.description);
    return { ...resolve(target), ...(schema.description ? { description: schema.description } : {}) };
  }
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices) {
    const choice = choices.find((one) => one.type !== "null");
    return { ...resolve(choice), ...(schema.description ? { description: schema.description } : {}) };
  }
  return schema;
}

function typesOf(schema) {
  return [resolve(schema).type ?? []].flat().filter((type) => type !== "null");
}

function typeName(schema) {
  const plain = resolve(schema);
  const type = typesOf(schema)[0] ?? "any";
  if (type === "array") return `${typeName(plain.items)}[]`;
  if (plain.format && type === "string") return plain.format;
  return plain.enum ? plain.enum.join(" | ") : type;
}

/** What a description gives as its first example: `like X`, or the first word between backticks. */
function quoted(description) {
  const text = description ?? "";
  return (text.match(/like `([^`]+)`/) ?? text.match(/^`([^`]+)`/))?.[1];
}

/** A value that fits the schema. Of a request's optional fields only those that bring their own example. */
function example(schema, name, forRequest, depth = 0) {
  const plain = resolve(schema);
  const given = schema?.example ?? plain.example ?? plain.examples?.[0] ?? plain.default;
  if (given !== undefined) return given;
  if (plain.enum) return plain.enum[0];
  switch (typesOf(plain)[0]) {
    case "array":
      return depth > EXAMPLE_DEPTH_MAX ? [] : [example(plain.items, name, forRequest, depth + 1)];
    case "integer":
    case "number":
      return Math.max(1, plain.minimum ?? 1);
    case "boolean":
      return true;
    case "string":
      return exampleText(plain, name);
    default:
      return exampleObject(plain, forRequest, depth);
  }
}

function exampleText(schema, name) {
  if (schema.format === "uuid") return page.seen.get(name)?.[0] ?? NO_ID;
  return usualText(name) ?? quoted(schema.description) ?? "string";
}

/** What a field of this name usually holds, when the description gives no example. */
function usualText(name) {
  const usual = { email: "anna@example.com", password: "correct horse", geo_zone: "MSK", zone: "MSK", entity: "carts" };
  return usual[name] ?? (/_at$|^at$|^last_active$/.test(name) ? "2025-11-28T09:00:00.000Z" : undefined);
}

function exampleObject(schema, forRequest, depth) {
  const value = {};
  if (depth > EXAMPLE_DEPTH_MAX) return value;
  const required = new Set(schema.required ?? []);
  const properties = Object.entries(schema.properties ?? {});
  // A request of optional fields only still has to say something.
  const first = required.size === 0 && !properties.some(([, one]) => one.example !== undefined) ? properties[0]?.[0] : undefined;
  for (const [name, property] of properties) {
    const wanted = !forRequest || required.has(name) || property.example !== undefined || name === first;
    if (wanted) value[name] = example(property, name, forRequest, depth + 1);
  }
  const rest = schema.additionalProperties;
  if (rest && typeof rest === "object" && properties.length === 0) value.MSK = example(rest, "", forRequest, depth + 1);
  return value;
}

/** The fields of a schema as a table, nested ones with a dot. */
function fieldRows(schema, prefix = "", depth = 0) {
  const plain = resolve(schema);
  if (depth > 2) return [];
  if (typesOf(plain)[0] === "array") return fieldRows(plain.items, prefix.replace(/\.$/, "[]."), depth + 1);
  const required = new Set(plain.required ?? []);
  return Object.entries(plain.properties ?? {}).flatMap(([name, property]) => [
    make(
      "tr",
      null,
      make("th", { scope: "row" }, make("code", null, prefix + name), required.has(name) && make("span", { class: "must" }, " required")),
      make("td", { class: "type" }, typeName(property)),
      make("td", null, words(resolve(property).description ?? "")),
    ),
    ...fieldRows(property, `${prefix}${name}.`, depth + 1),
  ]);
}

function fieldTable(schema) {
  const rows = fieldRows(schema);
  if (rows.length === 0) return null;
  return make("div", { class: "wide" }, make("table", { class: "fields" }, make("tbody", null, rows)));
}

// ---- One call ------------------------------------------------------------------------------------------------------

/** `security: [{}, {token: []}]` means that a token may come along. */
function tokenNeed(operation) {
  const ways = operation.security ?? [];
  if (ways.length === 0) return "none";
  return ways.some((way) => Object.keys(way).length === 0) ? "optional" : "required";
}

function bodySchema(operation) {
  return operation.requestBody?.content?.["application/json"]?.schema;
}

function callElement(call) {
  const details = make(
    "details",
    { class: "call", id: call.id },
    make(
      "summary",
      null,
      badge(call.method),
      pathText(call.path),
      make("span", { class: "summary" }, words(call.operation.summary ?? "")),
    ),
  );
  // Forms are made when they are first looked at: there are many, and few are used.
  let form = null;
  details.addEventListener("toggle", () => {
    if (!details.open) return;
    if (form) form.suggest();
    else {
      form = new CallForm(call);
      details.append(form.element);
    }
  });
  return details;
}

class CallForm {
  constructor(call) {
    this.call = call;
    this.inputs = (call.operation.parameters ?? []).map((parameter) => this.parameterInput(parameter));
    this.body = null;
    this.bodyEdited = false;
    this.send = make("button", { type: "submit", class: "send" }, "Send");
    this.curl = make("pre", { class: "curl", tabindex: "0", "aria-label": "The same as a curl command" });
    this.answer = make("section", { class: "answer", "aria-live": "polite", hidden: true });
    this.form = make(
      "form",
      { novalidate: true, submit: (event) => this.submit(event), input: () => this.showCurl(), keydown: (event) => this.hotkey(event) },
      this.inputs.length > 0 && make("div", { class: "parameters" }, this.inputs.map((input) => input.row)),
      this.bodyField(),
      make("div", { class: "actions" }, this.send, make("span", { class: "quiet keys" }, "or Ctrl + Enter")),
    );
    const need = tokenNeed(call.operation);
    this.element = make(
      "div",
      { class: "inside" },
      paragraphs(call.operation.description, "about"),
      need !== "none" && make("p", { class: "need" }, need === "required" ? "Needs a token" : "A token may come along"),
      this.form,
      make("div", { class: "curl-box" }, this.curl, copyButton("Copy", () => this.curlText())),
      this.answer,
      this.responses(),
    );
    document.addEventListener("token", () => this.showCurl());
    this.suggest();
  }

  parameterInput(parameter) {
    const id = `${this.call.id}-${parameter.in}-${parameter.name}`;
    const isKey = parameter.name.toLowerCase() === "idempotency-key";
    const list = make("datalist", { id: `${id}-list` });
    const field = make("input", {
      id,
      type: "text",
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      list: `${id}-list`,
      required: parameter.required,
      "aria-describedby": `${id}-about`,
      placeholder: quoted(parameter.description) ?? "",
    });
    if (isKey && parameter.required) field.value = randomUuid();
    else if (parameter.required) field.value = usualText(parameter.name) ?? quoted(parameter.description) ?? "";
    const renew = make("button", { type: "button", class: "plain small", click: () => this.setField(field, randomUuid()) }, "New key");
    const row = make(
      "div",
      { class: isKey ? "parameter long" : "parameter" },
      make(
        "label",
        { for: id },
        make("code", null, parameter.name),
        make("span", { class: "quiet" }, ` ${parameter.in}, ${typeName(parameter.schema)}`),
        parameter.required && make("span", { class: "must" }, " required"),
      ),
      make("div", { class: "with-button" }, field, isKey && renew, list),
      make("p", { class: "note", id: `${id}-about` }, words(parameter.description ?? "")),
    );
    return { parameter, field, list, row };
  }

  bodyField() {
    const schema = bodySchema(this.call.operation);
    if (!schema) return null;
    const id = `${this.call.id}-body`;
    this.body = make("textarea", { id, spellcheck: "false", autocapitalize: "off", input: () => (this.bodyEdited = true) });
    this.bodyTrouble = make("p", { class: "note trouble", role: "status" });
    const reset = () => {
      this.bodyEdited = false;
      this.fillBody();
      this.showCurl();
    };
    const fields = fieldTable(schema);
    return make(
      "div",
      { class: "body" },
      make(
        "div",
        { class: "label-row" },
        make("label", { for: id }, make("span", null, "Body"), make("span", { class: "quiet" }, " JSON")),
        make("button", { type: "button", class: "plain small", click: reset }, "Example"),
      ),
      this.body,
      this.bodyTrouble,
      fields && make("details", { class: "more" }, make("summary", null, "Fields"), paragraphs(resolve(schema).description, "note"), fields),
    );
  }

  fillBody() {
    if (!this.body || this.bodyEdited) return;
    this.body.value = JSON.stringify(example(bodySchema(this.call.operation), "", true), null, 2);
    this.body.rows = Math.min(16, Math.max(3, this.body.value.split("\n").length));
  }

  setField(field, value) {
    field.value = value;
    this.showCurl();
  }

  /** Offers the ids of earlier answers. */
  suggest() {
    for (const { parameter, field, list } of this.inputs) {
      const values = page.seen.get(parameter.name) ?? [];
      list.replaceChildren(...values.map((value) => make("option", { value })));
      if (parameter.in === "path" && !field.value && values.length > 0) field.value = values[0];
    }
    this.fillBody();
    this.showCurl();
  }

  hotkey(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.form.requestSubmit();
    }
  }

  /** The request as it stands in the form. */
  request() {
    const headers = new Headers();
    const query = new URLSearchParams();
    let path = this.call.path;
    for (const { parameter, field } of this.inputs) {
      const value = field.value.trim();
      if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, () => (value ? encodeURIComponent(value) : `{${parameter.name}}`));
      else if (value && parameter.in === "query") query.append(parameter.name, value);
      // The key goes as it was typed, but only ASCII can be a header here.
      else if (value && parameter.in === "header") headers.set(parameter.name, value);
    }
    if (token.value() && this.call.path.startsWith("/v1/")) headers.set("Authorization", `Bearer ${token.value()}`);
    const body = this.body?.value.trim() || undefined;
    if (body !== undefined) headers.set("Content-Type", "application/json");
    const search = query.toString();
    return { method: this.call.method.toUpperCase(), url: location.origin + path + (search ? `?${search}` : ""), headers, body };
  }

  curlText() {
    const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
    let request;
    try {
      request = this.request();
    } catch {
      return "# a header has characters that cannot be sent";
    }
    const parts = [`curl ${request.method === "GET" ? "" : `-X ${request.method} `}${quote(request.url)}`];
    const names = { authorization: "Authorization", "content-type": "Content-Type", "idempotency-key": "Idempotency-Key" };
    request.headers.forEach((value, name) => parts.push(`-H ${quote(`${names[name] ?? name}: ${value}`)}`));
    if (request.body !== undefined) parts.push(`-d ${quote(compact(request.body))}`);
    return parts.join(" \\\n  ");
  }

  showCurl() {
    this.curl.textContent = this.curlText();
    if (this.body) this.bodyTrouble.textContent = jsonTrouble(this.body.value);
  }

  async submit(event) {
    event.preventDefault();
    const missing = this.inputs.find(({ parameter, field }) => parameter.in === "path" && !field.value.trim());
    if (missing) {
      missing.field.focus();
      this.show(make("p", { class: "trouble" }, `The path needs ${missing.parameter.name}.`));
      return;
    }
    this.send.disabled = true;
    const started = performance.now();
    try {
      const { method, url, headers, body } = this.request();
      const response = await fetch(url, { method, headers, body, credentials: "omit", cache: "no-store" });
      if (isText(response)) this.showAnswer(response, await response.text(), performance.now() - started);
      else this.showFile(response, await response.blob(), performance.now() - started);
    } catch (error) {
      this.show(make("p", { class: "trouble" }, `No answer: ${error.message}`));
    } finally {
      this.send.disabled = false;
    }
  }

  show(...content) {
    this.answer.hidden = false;
    this.answer.replaceChildren(make("h3", null, "Answer"), ...content);
  }

  showAnswer(response, text, ms) {
    const value = parsed(text);
    if (response.ok) remember(value);
    const offersToken = typeof value?.token === "string" && value.token;
    const use = () => token.use(value.token, "The token of the last answer. Kept until this tab is closed.");
    this.show(
      verdict(
        response,
        ms,
        new TextEncoder().encode(text).length,
        offersToken && make("button", { type: "button", class: "small", click: use }, "Use this token"),
        text && copyButton("Copy", () => pretty(value, text)),
      ),
      headerTable(response),
      text ? make("pre", { class: "json", tabindex: "0", "aria-label": "The answer's body" }, coloured(value, text)) : make("p", { class: "quiet" }, "No body."),
    );
  }

  showFile(response, blob, ms) {
    const name = this.call.path.split("/").pop();
    const link = make("a", { href: URL.createObjectURL(blob), download: name }, `Save it as ${name}`);
    this.show(verdict(response, ms, blob.size), headerTable(response), make("p", null, link));
  }

  responses() {
    const rows = Object.entries(this.call.operation.responses ?? {}).map(([status, response]) => {
      const schema = Object.values(response.content ?? {})[0]?.schema;
      const shape = schema && JSON.stringify(example(schema, "", false), null, 2);
      return make(
        "li",
        null,
        make("span", { class: `status ${kindOf(Number(status))}` }, status),
        make("div", null,
          make("p", null, words(response.description || resolve(schema).description || ""), !schema && !response.description && "No body."),
          shape && make("details", { class: "more" }, make("summary", null, "Shape"), make("pre", { class: "json", tabindex: "0" }, coloured(JSON.parse(shape), shape)))),
      );
    });
    return make("section", { class: "responses" }, make("h3", null, "Responses"), make("ul", null, rows));
  }
}

// ---- Answers -------------------------------------------------------------------------------------------------------

function isText(response) {
  const type = response.headers.get("Content-Type") ?? "";
  return type === "" || /json|text|xml/.test(type);
}

function kindOf(status) {
  return status < 400 ? "good" : status < 500 ? "refused" : "broken";
}

/** Status, time and size in one line, and what can be done with the answer. */
function verdict(response, ms, bytes, ...buttons) {
  return make(
    "div",
    { class: "verdict" },
    make("span", { class: `status ${kindOf(response.status)}` }, `${response.status} ${response.statusText}`),
    make("span", null, `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`),
    make("span", null, bytes < 1024 ? `${bytes} B` : `${(bytes / 1024).toFixed(1)} KiB`),
    make("span", { class: "spring" }),
    buttons,
  );
}

function headerTable(response) {
  const rows = [...response.headers].map(([name, content]) => make("tr", null, make("th", { scope: "row" }, name), make("td", null, content)));
  return make(
    "details",
    { class: "more" },
    make("summary", null, `Headers (${rows.length})`),
    make("div", { class: "wide" }, make("table", { class: "fields" }, make("tbody", null, rows))),
  );
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function pretty(value, text) {
  return value === undefined ? text : JSON.stringify(value, null, 2);
}

function compact(text) {
  const value = parsed(text);
  return value === undefined ? text : JSON.stringify(value);
}

function jsonTrouble(text) {
  if (!text.trim()) return "";
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return `Not JSON yet: ${error.message}`;
  }
}

/** JSON with its keys, strings, numbers and words set off. */
function coloured(value, text) {
  const whole = pretty(value, text);
  if (value === undefined || whole.length > COLOURED_CHARS_MAX) return [whole];
  const pattern = /("(?:\\.|[^"\\])*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
  const parts = [];
  let end = 0;
  for (const found of whole.matchAll(pattern)) {
    parts.push(whole.slice(end, found.index));
    const [all, string, colon, word] = found;
    const kind = string ? (colon ? "key" : "string") : word ? "word" : "number";
    parts.push(make("span", { class: `j-${kind}` }, string ?? all), colon ?? "");
    end = found.index + all.length;
  }
  parts.push(whole.slice(end));
  return parts;
}

/** Keeps the ids in an answer, to suggest them later. */
function remember(value, depth = 0) {
  if (value === null || typeof value !== "object" || depth > EXAMPLE_DEPTH_MAX) return;
  if (Array.isArray(value)) {
    // The first of a list should be the first suggestion.
    [...value].reverse().forEach((one) => remember(one, depth + 1));
    return;
  }
  for (const [name, content] of Object.entries(value)) {
    if (typeof content === "string" && name.endsWith("_id")) {
      const known = (page.seen.get(name) ?? []).filter((one) => one !== content);
      page.seen.set(name, [content, ...known].slice(0, SUGGESTIONS_MAX));
    } else remember(content, depth + 1);
  }
}

// ---- The page ------------------------------------------------------------------------------------------------------

function callsOf(description) {
  return Object.entries(description.paths ?? {}).flatMap(([path, methods]) =>
    METHODS.filter((method) => methods[method]).map((method) => ({
      path,
      method,
      operation: methods[method],
      tag: methods[method].tags?.[0] ?? "other",
      id: `${method}-${path.replace(/[^a-zA-Z0-9]+/g, "-").replace(/^-|-$/g, "")}`,
    })),
  );
}

/** Subjects in the order in which the description names them, then the rest. */
function subjects(description, calls) {
  const named = (description.tags ?? []).map((tag) => tag.name);
  const all = [...new Set([...named, ...calls.map((call) => call.tag)])];
  return all
    .map((name) => ({
      name,
      about: description.tags?.find((tag) => tag.name === name)?.description,
      calls: calls.filter((call) => call.tag === name),
    }))
    .filter((subject) => subject.calls.length > 0);
}

function render(description) {
  page.description = description;
  page.operations = callsOf(description);
  document.getElementById("version").textContent = description.info?.version ?? "";
  const groups = subjects(description, page.operations);
  document.getElementById("nav").replaceChildren(...groups.map(navGroup));
  const intro = make(
    "section",
    { class: "intro" },
    make("h1", null, "The shop's API"),
    paragraphs(description.info?.description),
    make(
      "p",
      { class: "quiet" },
      "A call opens with a click or with Enter. What is sent is real: start a guest session above, or log in and use the token of the answer. The description itself: ",
      make("a", { href: "/openapi.json" }, "/openapi.json"),
      ".",
    ),
  );
  const sections = groups.map((group) =>
    make(
      "section",
      { class: "subject", id: `about-${group.name}`, "aria-labelledby": `title-${group.name}` },
      make("h2", { id: `title-${group.name}` }, group.name),
      group.about && make("p", { class: "quiet" }, words(group.about)),
      group.calls.map((call) => (call.element = callElement(call))),
    ),
  );
  document.getElementById("content").replaceChildren(intro, ...sections);
}

function navGroup(group) {
  const links = group.calls.map((call) => {
    call.link = make(
      "li",
      null,
      make("a", { href: `#${call.id}`, title: call.operation.summary, click: () => reveal(call.id) }, badge(call.method), pathText(call.path)),
    );
    return call.link;
  });
  return make("section", null, make("h2", null, make("a", { href: `#about-${group.name}` }, group.name)), make("ul", null, links));
}

/** Opens a call and, on a narrow screen, closes the menu that led to it. */
function reveal(id) {
  const call = page.operations.find((one) => one.id === id);
  if (!call) return;
  call.element.open = true;
  if (narrow.matches) menu.open = false;
  requestAnimationFrame(() => {
    call.element.scrollIntoView({ block: "start" });
    call.element.querySelector("summary").focus({ preventScroll: true });
  });
}

function find(text) {
  const wanted = text.trim().toLowerCase().split(/\s+/);
  for (const call of page.operations) {
    const about = `${call.method} ${call.path} ${call.operation.summary ?? ""} ${call.tag}`.toLowerCase();
    call.link.hidden = !wanted.every((word) => about.includes(word));
  }
  for (const group of document.querySelectorAll("#nav section")) group.hidden = !group.querySelector("li:not([hidden])");
}

const narrow = matchMedia("(max-width: 60rem)");
const menu = document.getElementById("menu");

function fitMenu() {
  menu.open = !narrow.matches;
}

async function start() {
  fitMenu();
  narrow.addEventListener("change", fitMenu);
  token.restore();
  token.field.addEventListener("input", () => token.changed());
  document.getElementById("session").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("guest").addEventListener("click", (event) => startGuestSession(event.currentTarget));
  document.getElementById("forget").addEventListener("click", () => token.use(""));
  const finder = document.getElementById("find");
  finder.addEventListener("input", () => find(finder.value));
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    menu.open = true;
    finder.focus();
  });
  addEventListener("hashchange", () => reveal(location.hash.slice(1)));

  const loading = document.getElementById("loading");
  loading.hidden = false;
  try {
    const response = await fetch("/openapi.json", { credentials: "omit" });
    if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
    render(await response.json());
  } catch (error) {
    loading.replaceWith(
      make("p", { class: "notice" }, `The description could not be read (${error.message}). `, make("a", { href: "/openapi.json" }, "/openapi.json")),
    );
    return;
  }
  if (location.hash.length > 1) reveal(location.hash.slice(1));
}

start();
