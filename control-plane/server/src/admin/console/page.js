// The page for admins. Keeps true: everything that the API answers is shown as text; the token is kept in memory alone.
"use strict";

const DAY_MS = 24 * 3600 * 1000;
// Most pages of the audit log that one search reads, and their size.
const MAX_PAGES = 50;
const PAGE = 1000;
const MAX_ROWS = 500;

// What the reasons of the audit log mean.
const REASONS = {
  denied: "refused by a rule",
  invalid_params: "the arguments are not valid",
  invalid_request: "the request is not valid",
  rate_limited: "over a limit",
  insufficient_scope: "a scope or an approval is missing",
  missing_capability: "the client lacks a capability",
  unknown_primitive: "no such primitive",
  unknown_server: "no such server",
  token_revoked: "the caller's token was revoked",
  token_expired: "the caller's token expired",
  content_refused: "the content was refused",
  upstream_unavailable: "the service did not answer as it should",
  deadline: "out of time, or cancelled",
  outcome_unknown: "the end is not known",
  gateway_lost: "the gateway was lost",
  internal: "a fault of the platform",
};
const OUTCOMES = { rejected: "refused", unknown: "end not known" };
const OTHER_SESSION = "Another org or token is in use now: ask again.";

let session = null;

const byId = (id) => document.getElementById(id);

// Sends a request; returns the body, the ETag and the next page, or throws an error with the refusal in words.
async function ask(method, path, body, headers = {}) {
  const asker = session;
  const options = { method, headers: { authorization: `Bearer ${asker.token}`, ...headers } };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  const response = await fetch(path, options);
  const text = await response.text();
  // What was asked for one org must not be shown or continued for another one.
  if (asker !== session) throw new Error(OTHER_SESSION);
  let answer = null;
  try {
    answer = text === "" ? null : JSON.parse(text);
  } catch {
    answer = { detail: text };
  }
  if (!response.ok) {
    const { title = "", detail = "" } = answer ?? {};
    const words = `${response.status} ${title}${detail === "" ? "" : `: ${detail}`}`;
    throw Object.assign(new Error(words), { status: response.status });
  }
  const next = /^<([^>]+)>; rel="next"$/.exec(response.headers.get("link") ?? "");
  return { answer, etag: response.headers.get("etag"), next: next === null ? null : next[1] };
}

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className !== undefined) made.className = className;
  return made;
}

function table(heads, rows) {
  const made = element("table");
  const head = element("tr");
  heads.forEach((text) => head.append(element("th", text)));
  made.append(head);
  for (const { cells, className } of rows) {
    const row = element("tr", undefined, className ?? "");
    for (const cell of cells) {
      const place = element("td");
      place.append(cell instanceof Node ? cell : String(cell ?? ""));
      row.append(place);
    }
    made.append(row);
  }
  return made;
}

function show(id, ...parts) {
  byId(id).replaceChildren(...parts);
}

function button(text, action) {
  const made = element("button", text);
  made.type = "button";
  made.addEventListener("click", () => guarded(action));
  return made;
}

// Runs an action; its failure is shown at the top of the page.
async function guarded(action) {
  byId("fault").textContent = "";
  document.body.setAttribute("aria-busy", "true");
  try {
    await action();
  } catch (error) {
    byId("fault").textContent = error.message;
  } finally {
    document.body.setAttribute("aria-busy", "false");
  }
}

function onSubmit(id, action) {
  byId(id).addEventListener("submit", (event) => {
    event.preventDefault();
    guarded(() => action(Object.fromEntries(new FormData(event.target))));
  });
}

const many = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const query = (members) => new URLSearchParams(Object.entries(members).filter(([, value]) => value !== "")).toString();
const time = (ms) => new Date(ms).toISOString();
const orgPath = (before, after) => `${before}${encodeURIComponent(session.org)}${after}`;

// Returns the primitives that are offered to the org.
const offered = async () => (await ask("GET", orgPath("/api/registry/orgs/", "/primitives"))).answer;

// Returns the id behind a name that clients see, and whether any primitive has the id or the name. An id or a pattern stays.
async function resolved(name) {
  if (name === "" || name.endsWith("*")) return { id: name, isKnown: true };
  const primitives = await offered();
  if (primitives.some((primitive) => primitive.name === name.split("@")[0])) return { id: name, isKnown: true };
  const named = primitives.filter(({ exposure }) => Object.values(exposure).includes(name));
  const ids = [...new Set(named.map((primitive) => primitive.name))];
  if (ids.length > 1) throw new Error(`${name} is the name of several primitives; enter the id of one: ${ids.join(", ")}`);
  return { id: ids[0] ?? name, isKnown: ids.length === 1 };
}

const unknownName = (name, { isKnown }) => (isKnown ? [] : [element("p",
  `No primitive that is offered to ${session.org} has the id or the name ${name}.`, "fault")]);

// Reads the ended calls between two times that pass the filters, newest first; `complete` is false if there are more.
async function endedCalls(from, to, filters) {
  const ended = [];
  let path = `/api/audit/calls?${query({ org: session.org, event: "call.finish", from, to, ...filters, limit: PAGE })}`;
  for (let page = 0; page < MAX_PAGES && path !== null; page += 1) {
    const { answer, next } = await ask("GET", path);
    ended.push(...answer);
    path = next;
  }
  return { ended, complete: path === null };
}

// Returns words with the code behind them.
const coded = (words, code) => (words === undefined ? code : `${words} (${code})`);
// A tool that reports an error has ended without a fault of its call.
const reasonOf = ({ reason, error }) => (reason === "ok" && error ? "the tool reported an error" : coded(REASONS[reason], reason));
const isRefused = ({ outcome }) => outcome === "rejected";
const isFailed = (event) => !isRefused(event) && (event.error === true || event.outcome !== "completed");
const isBad = (event) => isRefused(event) || isFailed(event);
const unseen = (user, when) => `No call by ${user} ${when}. If that is a surprise, check the name.`;

// Whether the log has the end of a call by a user or machine since then, as far as one search reads.
async function hasCalls(user, from) {
  const filters = query({ org: session.org, event: "call.finish", user, from, limit: 1 });
  return (await ask("GET", `/api/audit/calls?${filters}`)).answer.length > 0;
}

// Returns each caller: its calls, and how many of them were refused or failed for which reason; the most calls first.
function byCaller(ended) {
  const callers = new Map();
  for (const { event } of ended) {
    const key = JSON.stringify([event.user, event.issuer]);
    const caller = callers.get(key)
      ?? { user: event.user, issuer: event.issuer, calls: 0, refused: 0, failed: 0, reasons: new Map() };
    callers.set(key, caller);
    caller.calls += 1;
    if (!isBad(event)) continue;
    caller[isRefused(event) ? "refused" : "failed"] += 1;
    const reason = reasonOf(event);
    caller.reasons.set(reason, (caller.reasons.get(reason) ?? 0) + 1);
  }
  return [...callers.values()].sort((one, other) => other.calls - one.calls);
}

async function showCalls({ primitive, user, day, refused }) {
  const from = Date.parse(`${day}T00:00:00Z`);
  const found = await resolved(primitive);
  const { ended, complete } = await endedCalls(from, from + DAY_MS, { primitive: found.id, user });
  const isAll = refused === undefined;
  const wanted = ended.filter(({ event }) => isAll || isBad(event));
  const callers = byCaller(ended).filter((caller) => isAll || caller.refused + caller.failed > 0);
  const number = (isOne) => ended.filter(({ event }) => isOne(event)).length;
  const ends = `${number(isRefused)} refused, ${number(isFailed)} failed`;
  const words = isAll ? `${many(ended.length, "call")} by ${many(callers.length, "caller")} on ${day} (UTC): ${ends}`
    : `${wanted.length} of ${many(ended.length, "call")} on ${day} (UTC), by ${many(callers.length, "caller")}: ${ends}`;
  const reasons = (caller) => [...caller.reasons].map(([reason, count]) => `${count} ${reason}`).join(", ");
  const summary = callers.slice(0, MAX_ROWS).map((caller) => ({
    cells: [caller.user, caller.issuer, caller.calls, caller.refused, caller.failed, reasons(caller)],
  }));
  const rows = wanted.slice(0, MAX_ROWS).map(({ at, event }) => ({
    cells: [time(at), event.user, event.issuer, event.server, event.primitive, event.protocol,
      coded(OUTCOMES[event.outcome], event.outcome),
      event.rule === undefined ? reasonOf(event) : `${reasonOf(event)}, by ${event.rule}`],
    className: isBad(event) ? "refused" : "",
  }));
  const notes = unknownName(primitive, found);
  if (!complete) notes.push(element("p", "The log has more events than one search reads.", "note"));
  if (callers.length > MAX_ROWS) notes.push(element("p", `The ${MAX_ROWS} callers with the most calls are shown.`, "note"));
  const newest = wanted.length > MAX_ROWS ? [element("p", `The newest ${MAX_ROWS} of ${wanted.length} calls:`, "note")] : [];
  show("calls-answer", element("p", words), ...notes,
    table(["User", "Issuer", "Calls", "Refused", "Failed", "Reasons"], summary), ...newest,
    table(["Time", "User", "Issuer", "Server", "Primitive", "Protocol", "Outcome", "Reason"], rows));
}

async function showUsage({ by, days }) {
  const from = time(Date.now() - (Number(days) - 1) * DAY_MS).slice(0, 10);
  const { answer } = await ask("GET", `/api/usage?${query({ org: session.org, by, from })}`);
  const rows = [...answer.groups, { name: "total", ...answer.total }].map((group) => ({
    cells: [group.name, group.calls, group.errors, group.rateLimited, group.latency.p50Ms, group.latency.p99Ms,
      (group.cpuMs / 1000).toFixed(3), group.tokensIn + group.tokensOut, group.cost.toFixed(2)],
  }));
  show("usage-answer", element("p", `from ${answer.from} to ${answer.to}`),
    table([by, "Calls", "Errors", "Limited", "p50 ms", "p99 ms", "CPU s", "Tokens", "Cost"], rows));
}

async function showUnused() {
  const days = new FormData(byId("usage")).get("days");
  const { answer } = await ask("GET", `/api/usage/unused?${query({ org: session.org, days })}`);
  const words = `${answer.unused.length} of ${answer.primitives} primitives had no admitted call since ${answer.from}`
    + (answer.recordedFrom === null ? "; no usage is on record"
      : answer.recordedFrom > answer.from ? `; the oldest usage on record is of ${answer.recordedFrom}` : "");
  const unknown = answer.unknownCalls === 0 ? [] : [element("p",
    `${answer.unknownCalls} admitted calls are counted without their primitive; they may be calls of these.`, "note")];
  show("usage-answer", element("p", words), ...unknown,
    table(["Server", "Primitive"], answer.unused.map(({ server, primitive }) => ({ cells: [server, primitive] }))));
}

const adminOf = (by) => ({ org: "of the org", platform: "of the platform" })[by] ?? "";

async function showBlocks() {
  // Its answer may be another one now.
  show("explain-answer");
  const { answer } = await ask("GET", `/api/blocks?${query({ org: session.org })}`);
  const lift = (found) => button("Let in again", async () => {
    await ask("DELETE", `/api/blocks?${query({ type: found.type, org: session.org, id: found.id })}`);
    await showBlocks();
  });
  const rows = answer.map((found) => ({
    cells: [found.id, found.reason, time(found.since), adminOf(found.by), lift(found)],
  }));
  show("block-answer", element("p", rows.length === 0 ? "Nobody is blocked." : "Blocked:"),
    table(["User", "Reason", "Since", "Admin", ""], rows));
}

// The answer for the user whose name was entered last.
let lookup = {};

// Whether a call by a user is counted in the last 30 days; asked once the name is entered, so that a block need not wait for it.
// True if that cannot be read: it must not hold up a block.
function isCounted(user) {
  if (lookup.asker === session && lookup.user === user) return lookup.answer;
  const from = time(Date.now() - 29 * DAY_MS).slice(0, 10);
  const read = async () => {
    const { answer } = await ask("GET", `/api/usage?${query({ org: session.org, by: "user", user, from, limit: 1 })}`);
    // The sums are a little later than the log.
    return answer.total.calls > 0 || hasCalls(user, Date.now() - 3600 * 1000);
  };
  lookup = { asker: session, user, answer: read().catch(() => true) };
  return lookup.answer;
}

async function block({ user, reason }) {
  const asker = session;
  const isKnown = await isCounted(user);
  if (asker !== session) throw new Error(OTHER_SESSION);
  lookup = {};
  const now = async () => {
    await ask("POST", "/api/blocks", { type: "user", org: session.org, id: user, reason });
    await showBlocks();
  };
  if (isKnown) return now();
  show("block-answer", element("p", unseen(user, "is counted in the last 30 days"), "fault"), button("Block anyway", now));
}

// Returns a rule as the audit log writes it.
function ruleId({ target, primitive, name = "" }) {
  const issuer = (target.issuer ?? "") === "" ? "" : `${target.issuer}/`;
  const id = `${target.type}:${issuer}${target.idOrPattern} ${primitive.name} ${primitive.protocol ?? "*"}`;
  return name === "" ? id : `${id} ${name}`;
}

// Returns what a rule says of its callers: that they `may call`, or `may not call`.
function ruleInWords({ target: { type, idOrPattern, issuer = "" }, primitive }, verb) {
  const of = issuer === "" || issuer === "*" ? "" : ` of ${issuer}`;
  const over = (primitive.protocol ?? "*") === "*" ? "" : ` over ${primitive.protocol}`;
  const what = primitive.name === "*" ? "anything"
    : primitive.name.endsWith("*") ? `anything that begins with ${primitive.name.slice(0, -1)}` : primitive.name;
  const isNobody = idOrPattern === "*" && verb === "may not call";
  const who = isNobody ? `no ${type}`
    : idOrPattern === "*" ? `every ${type}`
      : type === "user" ? idOrPattern : `the ${type} ${idOrPattern}`;
  return `${who}${of} ${isNobody ? "may call" : verb} ${what}${over}`;
}

// Returns the answer to the question whether a user may call a primitive at a server, in words.
function decisionInWords({ user, primitive, server }, { outcome, decidedBy, rules = [] }) {
  const { binding, rule, missing = [] } = decidedBy;
  const conditional = rules.length === 0 ? ""
    : " Rules with conditions, or that are only observed, speak of it too; the arguments of a call may decide.";
  switch (outcome) {
    case "allowed":
      if (binding !== undefined) return `Allowed by the rule: ${ruleInWords(binding, "may call")}.${conditional}`;
      return rules.length === 0 ? "Allowed: no rule speaks of it, and it is offered to everybody in the org."
        : `Allowed: it is offered to everybody in the org.${conditional}`;
    case "needs_approval":
      if (binding !== undefined) return `Allowed once a person approves the call, by the rule: ${ruleInWords(binding, "may call")}.`;
      return "Allowed once a person approves the call: it is destructive or of high risk, and no rule allows it.";
    case "denied":
      return binding === undefined ? "Refused by the policy." : `Refused by the rule: ${ruleInWords(binding, "may not call")}.`;
    case "blocked": return `Refused: ${user} is blocked.`;
    case "token_revoked": return `Refused: the tokens of ${user} are revoked.`;
    case "insufficient_scope": return `Refused, unless the token has the scope ${missing.join(", ")}.`;
    case "not_offered": return `Refused: ${primitive} at ${server} is not offered to ${session.org}.`;
    case "not_exposed": return `Refused: ${server} is switched off for ${session.org} over MCP.`;
    case "unknown_server": return `There is no server ${server}.`;
    case "unknown_primitive": return `The server ${server} has no ${primitive} that MCP clients can call.`;
    default: return `Refused: ${rule ?? outcome.replaceAll("_", " ")}.`;
  }
}

// Returns the outcome and the rule that decided, exactly as the API has them.
function exactly({ outcome, decidedBy: { stage, rule, binding, ...details } }) {
  if (binding !== undefined) return `${outcome}, by ${ruleId(binding)}`;
  if (rule !== undefined) return `${outcome}, by ${stage}: ${rule}`;
  return Object.keys(details).length === 0 ? outcome : `${outcome}, by ${stage}: ${JSON.stringify(details)}`;
}

async function explain({ user, primitive, server }) {
  const question = { org: session.org, user, server, primitive, protocol: "mcp" };
  const { answer } = await ask("POST", "/api/policy/explain", question);
  const revoked = (answer.revocations ?? []).map((found) => ({
    cells: [found.type.startsWith("block_") ? "block" : "revocation", found.reason ?? "", adminOf(found.by)],
  }));
  show("explain-answer", element("p", decisionInWords(question, answer)), element("small", exactly(answer), "note"),
    ...(revoked.length === 0 ? [] : [table(["Block or revocation", "Reason", "Admin"], revoked)]));
}

// Returns the newest change of one kind in the history of the org; `undefined` if there is none.
async function newestChange(kind) {
  return (await ask("GET", `/api/audit?${query({ org: session.org, kind, limit: 1 })}`)).answer[0];
}

// Makes a change; returns the answer, and a button that offers its undo. There is no button if nothing changed, or if the history
// cannot be read any more: the change is stored all the same.
async function withUndo(kind, id, write) {
  const asker = session;
  const before = await newestChange(kind);
  const answer = await write();
  let change;
  try {
    change = await newestChange(kind);
  } catch (error) {
    if (asker !== session) throw error;
  }
  const isNew = change !== undefined && change.revision !== before?.revision && change.undoable;
  return { answer, undo: isNew ? [button("Undo", () => previewUndo(change.revision, id))] : [] };
}

// Shows what the undo of a change would do, and offers it; it is refused if the list has changed since.
async function previewUndo(revision, id) {
  const path = `/api/audit/${revision}/undo`;
  const { answer, etag } = await ask("GET", path);
  const undo = button("Undo this change", async () => {
    const done = await ask("POST", path, undefined, etag === null ? {} : { "if-match": etag });
    show(id, element("p", "Undone."), button("Undo that", () => previewUndo(done.answer.revision, id)));
  });
  const entries = (word, list) => list.map((entry) => ({ cells: [word, JSON.stringify(entry)] }));
  const effects = (word, list) => list.map(({ who, server, primitive, protocol, from, to }) => ({
    cells: [word, `${who} at ${server}: ${primitive} by ${protocol}, ${from} -> ${to}`],
  }));
  const more = answer.more === 0 ? [] : [element("p", `${answer.more} more effects are not shown.`, "note")];
  show(id, element("p", `The undo of change ${answer.change} (${answer.action} by ${answer.actor} at ${time(answer.at)}):`),
    table(["", ""], [...entries("removes", answer.removes), ...entries("stores again", answer.restores),
      ...effects("gives", answer.gains), ...effects("takes", answer.loses)]), ...more, undo);
}

// Replaces the limits of the org by what `change` makes of them; returns the stored list.
async function changeLimits(change) {
  const path = orgPath("/api/ratelimits/orgs/", "");
  const stored = await ask("GET", path);
  const condition = stored.etag === null ? { "if-none-match": "*" } : { "if-match": stored.etag };
  return (await ask("PUT", path, change(stored.answer), condition)).answer;
}

// Returns what a burst is, if one of the limits has one.
const burst = (words) => (words.some((text) => text.includes(", up to ")) ? [element("p",
  '"Up to ... at once": after a pause, so many calls may come in one moment; then only as many as the rate allows.', "note")] : []);

async function showLimits() {
  const { answer } = await ask("GET", orgPath("/api/ratelimits/orgs/", "/usage"));
  const remove = (unwanted) => button("Remove", async () => {
    const { undo } = await withUndo("limit", "limit-answer", () => changeLimits((limits) => {
      const place = limits.findIndex((limit) => JSON.stringify(limit) === JSON.stringify(unwanted));
      if (place < 0) throw new Error("The limit is not stored any more: show the limits again.");
      return limits.filter((_, index) => index !== place);
    }));
    await showLimits();
    byId("limit-answer").prepend(element("p", "Removed."), ...undo);
  });
  // Those of all orgs are not in the org's list, which may have an equal one.
  const rows = answer.limits.map(({ limit, words, ofAllOrgs, calls, wouldRefuse }) => ({
    cells: ofAllOrgs ? [`${words} (of all orgs)`, calls, wouldRefuse, ""] : [words, calls, wouldRefuse, remove(limit)],
  }));
  show("limit-answer", element("p", `${many(rows.length, "limit")}; calls since ${time(answer.since)}, and how many of them each `
    + "would have refused alone"), ...burst(answer.limits.map(({ words }) => words)),
  table(["Limit", "Calls", "Refused", ""], rows));
}

async function tryLimit({ count, unit, primitive }) {
  const found = await resolved(primitive);
  const line = `${count}/${unit} for each user${primitive === "" ? "" : ` on ${primitive}`}`;
  const { answer } = await ask("GET", `${orgPath("/api/ratelimits/orgs/", "/usage")}?${query({ limit: line })}`);
  const [tried] = answer.limits;
  const words = `${tried.words}: would have refused ${tried.wouldRefuse} of ${tried.calls} calls and `
    + `${tried.wouldRefuseCallers} of ${tried.callers} callers since ${time(answer.since)}`;
  const store = button("Store this limit", async () => {
    const { answer: after, undo } = await withUndo("limit", "limit-answer",
      () => changeLimits((limits) => [...limits, tried.limit]));
    show("limit-answer", element("p", `Stored; the org has ${many(after.length, "limit")}.`), ...undo);
  });
  const rows = tried.refused.map((caller) => ({ cells: [caller.user, caller.issuer, caller.wouldRefuse, caller.calls] }));
  show("limit-answer", element("p", words), ...unknownName(primitive, found),
    element("p", "Calls that the policy refuses are not counted.", "note"), ...burst([tried.words]),
    table(["User", "Issuer", "Refused", "Calls"], rows), store);
}

// Returns a sentence if a user or machine may not call a primitive now, over any protocol that has it.
async function refusedAlready({ type, idOrPattern: target, issuer = "" }, primitive) {
  const servers = (await offered()).filter(({ name }) => name === primitive.split("@")[0]);
  const caller = { org: session.org, [type]: target, ...(issuer === "" || type === "machine" ? {} : { issuer }) };
  const questions = servers.flatMap(({ name, server, exposure }) => Object.keys(exposure)
    .filter((protocol) => exposure[protocol] !== null)
    .map((protocol) => ({ ...caller, server, primitive: name, protocol })));
  // More would take too long.
  if (questions.length === 0 || questions.length > 10) return [];
  const answers = await Promise.all(questions.map((question) => ask("POST", "/api/policy/explain", question)));
  const isOne = (outcomes) => ({ answer }) => outcomes.includes(answer.outcome);
  const refused = answers.find(isOne(["denied", "blocked"]));
  if (refused === undefined || answers.some(isOne(["allowed", "needs_approval", "insufficient_scope"]))) return [];
  return [element("p", `${target} is already refused. ${decisionInWords({ user: target }, refused.answer)}`, "note")];
}

async function tryRule({ allowed, primitive, type, target, issuer }) {
  const found = await resolved(primitive);
  const binding = {
    target: { type, idOrPattern: target === "" ? "*" : target, ...(issuer === "" ? {} : { issuer }) },
    primitive: { name: primitive },
    allowed: allowed === "true",
  };
  const { answer } = await ask("POST", "/api/policy/preview", { org: session.org, bindings: [binding] });
  const changes = answer.newlyRefused + answer.newlyAdmitted + answer.newlyAsked;
  const period = `${many(answer.calls, "call")} (since ${time(answer.since)})`;
  const words = `By policy alone, of the ${answer.more ? "newest " : ""}${period}, `
    + `${answer.newlyRefused} would be refused, ${answer.newlyAdmitted} would be allowed, `
    + `and ${answer.newlyAsked} would need a person's approval.`;
  // Something else may have refused a call that the policy allowed, such as its arguments.
  const decision = (access) => (access === "admitted" ? "allowed" : access);
  const { groups, arguments: byArguments, notServed } = answer.undetermined;
  const unknown = groups + byArguments + notServed === 0 ? [] : [element("p",
    `Not determined: ${groups} by the groups of their callers, ${byArguments} by their arguments, `
    + `${notServed} because no server has the primitive any more.`, "note")];
  const older = answer.more ? [element("p", "Older calls in the log were not read.", "note")] : [];
  const isOne = type !== "group" && target !== "" && !target.endsWith("*");
  const isSeen = !isOne || await hasCalls(target, answer.since);
  const warning = isSeen ? [] : [element("p", unseen(target, "in this period"), "fault")];
  const already = isOne && binding.allowed === false && found.isKnown && !primitive.endsWith("*")
    ? await refusedAlready(binding.target, found.id) : [];
  const store = button(isSeen ? "Store this rule" : "Store this rule anyway", async () => {
    const { undo } = await withUndo("binding", "rule-answer",
      () => ask("PUT", orgPath("/api/policy/orgs/", "/bindings"), binding));
    show("rule-answer", element("p", "Stored."), ...undo, element("p",
      `asp history --org ${session.org} --kind binding lists the change, and asp undo CHANGE takes it back.`, "note"));
  });
  const callers = answer.callers.map(({ user, issuer, refused, admitted, asked }) => ({
    cells: [user, issuer, refused, admitted, asked],
  }));
  const newest = changes <= answer.changed.length ? []
    : [element("p", `The newest ${answer.changed.length} of ${changes} changed calls:`, "note")];
  const rows = answer.changed.map((call) => ({
    cells: [time(call.at), call.user, call.server, call.primitive, call.protocol,
      `${decision(call.from)} -> ${decision(call.to)}`, reasonOf(call), call.call],
    className: call.to === "refused" ? "refused" : "",
  }));
  show("rule-answer", element("p", words), ...older, ...unknownName(primitive, found), ...warning, ...already, ...unknown,
    table(["User", "Issuer", "Refused", "Allowed", "Approval"], callers), ...newest,
    table(["Time", "User", "Server", "Primitive", "Protocol", "Change by policy", "Recorded as", "Call"], rows), store);
}

async function showLive({ kind }) {
  const { answer } = await ask("GET", `/api/${kind}?${query({ org: session.org })}`);
  const end = (work) => button(kind === "calls" ? "Cancel" : "End", async () => {
    const path = `/api/${kind}/${encodeURIComponent(work.id)}?${query({ org: session.org })}`;
    await ask("DELETE", path);
    show("live-answer", element("p", `${work.id} ends within about a second.`));
  });
  const rows = answer.map((work) => ({
    cells: [time(work.since), work.user, work.server, work.primitive ?? "", work.state ?? "", work.id, end(work)],
  }));
  show("live-answer", element("p", `${answer.length} ${kind}`),
    table(["Since", "User", "Server", "Primitive", "State", "Id", ""], rows));
}

onSubmit("login", async () => {
  session = { org: byId("org").value, token: byId("token").value.trim() };
  byId("main").hidden = true;
  // Their buttons would act on the org that is in use now.
  document.querySelectorAll("[id$=-answer]").forEach((answer) => answer.replaceChildren());
  try {
    await ask("GET", orgPath("/api/ratelimits/orgs/", ""));
  } catch (error) {
    if (error.status !== 404) throw error;
    throw new Error(`The token is not valid for the org ${session.org}: check the name, and the role of the token.`);
  }
  const primitives = await offered();
  const options = primitives.slice(0, MAX_ROWS).map(({ name, exposure }) => {
    const option = element("option", exposure.mcp ?? "");
    option.value = name;
    return option;
  });
  show("primitives", ...options);
  byId("token").value = "";
  byId("main").hidden = false;
});
onSubmit("calls", showCalls);
onSubmit("usage", showUsage);
onSubmit("block", block);
document.querySelector("#block [name=user]").addEventListener("change", ({ target }) => {
  if (target.value !== "") isCounted(target.value);
});
onSubmit("explain", explain);
onSubmit("limit", tryLimit);
onSubmit("rule", tryRule);
onSubmit("live", showLive);
byId("unused").addEventListener("click", () => guarded(showUnused));
byId("limits").addEventListener("click", () => guarded(showLimits));
byId("blocks").addEventListener("click", () => guarded(showBlocks));
document.querySelector("#calls [name=day]").value = time(Date.now() - DAY_MS).slice(0, 10);
