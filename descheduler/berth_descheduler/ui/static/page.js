// The page asks REST with its reader's token; every text of the cluster is put in as text, never as markup.

const READ_EVERY_MILLISECONDS = 5000;
const RECONNECT_MILLISECONDS = 2000;
const OBJECTS_SHOWN = 20; // of one kind of finding
const COMMANDS_SHOWN = 3;
const OVER = new Set(["Succeeded", "Partial", "Failed", "Aborted"]);
const MOVE_OVER = new Set(["Landed", "Elsewhere", "Removed", "Skipped", "Failed"]);
const TOKEN = "berth-token";

const byId = (id) => document.getElementById(id);
// `berth ui` puts the token of its run behind the address, where no request carries it. Elsewhere a link could bring one.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given && ["127.0.0.1", "localhost"].includes(location.hostname)) {
  sessionStorage.setItem(TOKEN, given);
  history.replaceState(null, "", location.pathname);
}
let token = sessionStorage.getItem(TOKEN) ?? "";
let shownPlan = null; // the PlanDocument that is unfolded
let following = null; // the AbortController of its event stream
let lastEventId = "";
let reading = null;
let readFailed = false;
let streamFailed = false;

class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

async function ask(path, options = {}) {
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch(path, { ...options, headers, credentials: "same-origin", cache: "no-store" });
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, problem.detail ?? `the service answered ${answer.status}`);
}

// --- words --------------------------------------------------------------------------------------------------------

const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const percent = (ratio) => `${Math.round(100 * ratio)} %`;
const amounts = (resources) => Object.entries(resources).map(([name, amount]) => `${name} ${amount}`).join(", ");

function time(text, absent = "") {
  if (!text) return absent;
  const shown = new Date(text).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  return element("time", { datetime: text, title: text }, shown);
}

function gain(predicted) {
  if (!predicted.freedNodeCount) return "";
  const resources = amounts(predicted.freedResources);
  const price = predicted.freedPricePerHour ? `, worth ${predicted.freedPricePerHour} an hour` : "";
  return `Gain: ${count(predicted.freedNodeCount, "node")}${resources && ` with ${resources}`}${price}.`;
}

function risk(predicted) {
  const parts = [
    [predicted.podsWithoutBudget, "with no disruption budget"],
    [predicted.onlyPods, "with no sibling"],
    [predicted.statefulSetPods, "of StatefulSets"],
  ].filter(([pods]) => pods);
  const pods = parts.map(([number, trait]) => `${count(number, "pod")} ${trait}`).join(", ");
  const seconds = predicted.expectedSeconds ? `about ${count(predicted.expectedSeconds, "second")}` : "";
  const risks = [pods, seconds].filter(Boolean).join("; ");
  return risks && `Risk: ${risks}.`;
}

function table(label, headings, rows) {
  const cell = (name, value, index, attributes) =>
    element(name, { class: headings[index].startsWith("#") ? "number" : null, ...attributes }, value);
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${label}` },
    element("table", {},
      element("thead", {}, element("tr", {}, ...headings.map((heading, index) =>
        cell("th", heading.replace("#", ""), index, { scope: "col" })))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((value, index) =>
        index ? cell("td", value, index, {}) : cell("th", value, index, { scope: "row" })))))));
}

// --- parts of the page ----------------------------------------------------------------------------------------------

function show(id, ...children) {
  const part = byId(id);
  const focused = part.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  part.replaceChildren(...children.filter((child) => child !== null));
  if (focused) part.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

const figures = (pairs) => element("dl", { class: "figures" },
  ...pairs.map(([label, value]) => element("div", {}, element("dt", {}, label), element("dd", {}, value))));

let nodes = null;
let shownNode = ""; // the name of the node whose figures stand below the map

function showNodes(list = nodes) {
  nodes = list;
  if (list === null) return;
  const open = (shownPlan?.moves ?? []).filter((move) => !MOVE_OVER.has(move.state) && move.state !== "Pending");
  const sources = new Set(open.map((move) => move.source));
  const targets = new Set(open.map((move) => move.target));
  if (!list.items.some((node) => node.name === shownNode)) shownNode = "";
  const reached = shownNode || list.items[0]?.name; // one stop for the tabulator; arrows go on from there
  const cells = list.items.map((node) => {
    const ratio = Math.max(0, ...Object.values(node.requestedRatio));
    const level = node.pods ? Math.max(1, Math.min(10, Math.ceil(10 * ratio))) : 0;
    const marks = [node.pods ? "" : "empty", sources.has(node.name) ? "leaves" : "", targets.has(node.name) ? "gains" : ""];
    const text = [
      `${node.name}: ${count(node.pods, "pod")}`,
      ...Object.entries(node.requestedRatio).map(([resource, share]) => `${resource} ${percent(share)}`),
      node.heldPlaces ? `${count(node.heldPlaces, "place")} held` : "",
      node.state,
    ].filter(Boolean).join(", ");
    return element("button", { type: "button", class: `l${level} ${marks.filter(Boolean).join(" ")}`, title: text, "aria-label": text,
      tabindex: node.name === reached ? "0" : "-1", "data-node": node.name, "data-key": `node ${node.name}` }, node.state ? "!" : "");
  });
  const summary = `${count(list.items.length, "node")}, ${list.emptyNodes} without pods, ${count(open.length, "move")} under way`;
  show("nodes",
    figures([["Nodes", list.items.length], ["Empty", list.emptyNodes], ["Pods", list.pods], ["Waiting", list.pendingPods], ["Places held", list.heldPlaces]]),
    list.items.length
      ? element("div", { class: list.items.length > 200 ? "map small" : "map", role: "group", "aria-label": summary }, ...cells)
      : element("p", {}, "The cluster has no nodes."),
    element("p", { id: "node" }, cells.find((cell) => cell.dataset.node === shownNode)?.title ?? ""),
    element("p", { class: "soft" }, "A cell is a node, filled as its fullest resource is requested. Dashed: no pods. ! cordoned, draining, kept or not ready. "
      + "Outlined: a move under way takes a pod off it (dashed) or brings one (solid). Choose a cell, or go from one to the next by the arrow keys, for its figures."));
}

function chooseNode(event) {
  const chosen = event.target.closest("[data-node]");
  if (!chosen) return;
  shownNode = chosen.dataset.node;
  for (const cell of chosen.parentElement.children) cell.tabIndex = cell === chosen ? 0 : -1;
  byId("node").textContent = chosen.title;
}

function goToNextNode(event) {
  const cells = [...(event.target.closest("[data-node]")?.parentElement.children ?? [])];
  const index = cells.indexOf(event.target);
  const columns = cells.filter((cell) => cell.offsetTop === cells[0].offsetTop).length;
  const next = cells[{ ArrowLeft: index - 1, ArrowRight: index + 1, ArrowUp: index - columns, ArrowDown: index + columns,
    Home: 0, End: cells.length - 1 }[event.key]];
  if (!next || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  next.focus();
}

function showPlans(list) {
  lastPlans = list.items;
  const rows = list.items.map((plan) => [
    element("button", { type: "button", class: "link", "data-key": plan.name, "aria-expanded": String(shownPlan?.name === plan.name),
      onclick: () => follow(plan.name) }, plan.name),
    plan.policy || "none", plan.phase, plan.plannedMoves, plan.landedOnTarget, plan.freedNodeCount, time(plan.created), plan.message]);
  byId("plan") ?? byId("plans").replaceChildren(element("div", { id: "plan-list" }), element("div", { id: "plan" }));
  show("plan-list", rows.length
    ? table("Plans", ["plan", "policy", "phase", "#moves", "#landed", "#freed", "made", "outcome"], rows)
    : element("p", {}, "There are no plans. A DeschedulerPolicy makes them, or ", element("code", {}, "berth run"), "."),
    list.remaining ? element("p", { class: "soft" }, `${count(list.remaining, "older plan")} more: `, element("code", {}, "berth plans")) : null);
  if (shownPlan === null) {
    const first = list.items.find((plan) => plan.phase === "Running") ?? list.items.find(isWaiting);
    if (first) follow(first.name);
  }
}

const isWaiting = (plan) => plan.phase === "Proposed" && plan.mode !== "Plan" && plan.mode !== null && !plan.approved && !plan.aborted;

function showPlan() {
  const plan = shownPlan;
  if (plan === null || !byId("plan")) return;
  const over = plan.moves.filter((move) => MOVE_OVER.has(move.state)).length;
  const predicted = plan.predicted;
  const reasons = [...(predicted?.restrictions ?? []).map((restriction) => restriction.message), ...(predicted?.notes ?? [])];
  const rows = plan.moves.slice(0, 200).map((move) => [
    `${move.namespace}/${move.pod}`, move.source, move.target || "any", move.state, [move.why, move.message].filter(Boolean).join("; ")]);
  show("plan", element("div", { class: "plan" },
    element("h3", {}, plan.name),
    element("p", { id: "plan-phase" }, `${plan.phase}${plan.aborted && !OVER.has(plan.phase) ? ", being aborted" : ""}${plan.message ? `: ${plan.message}` : ""}`),
    ...(predicted ? [gain(predicted), risk(predicted)] : []).filter(Boolean).map((sentence) => element("p", {}, sentence)),
    ...reasons.map((sentence) => element("p", { class: "soft" }, sentence)),
    plan.moves.length ? element("p", {}, element("label", { for: "moved" }, `${over} of ${count(plan.moves.length, "move")} over`),
      element("progress", { id: "moved", max: plan.moves.length, value: String(over) })) : null,
    element("p", { class: "buttons" },
      isWaiting(plan) ? element("button", { id: "approve", "data-key": "approve", type: "button", class: "main", onclick: () => confirmApproval(plan) }, "Approve…") : null,
      !OVER.has(plan.phase) && !plan.aborted
        ? element("button", { id: "abort", "data-key": "abort", type: "button", onclick: () => confirmAbort(plan) }, "Abort…") : null),
    rows.length ? table(`Moves of ${plan.name}`, ["pod", "from", "to", "state", "why"], rows) : null,
    plan.moves.length > rows.length ? element("p", { class: "soft" }, `${plan.moves.length - rows.length} more moves: `, element("code", {}, `berth show ${plan.name}`)) : null));
  showNodes();
}

function showPolicies(list) {
  const trigger = ({ cron, timeZone, interval }) => cron ? `${cron} ${timeZone ?? ""}` : interval ? `every ${interval}` : "on request";
  const rows = list.items.map((policy) => [
    policy.name, `${trigger(policy.trigger)}${policy.suspend ? " (suspended)" : ""}`, policy.mode,
    time(policy.lastRunTime, "never"), time(policy.nextRunTime), policy.invalidBecause ? `✗ ${policy.invalidBecause}` : [policy.lastOutcome, ...policy.warnings].filter(Boolean).join("; ")]);
  show("policies", rows.length ? table("Policies", ["policy", "trigger", "mode", "last run", "next run", "outcome"], rows)
    : element("p", {}, "There are no policies. A DeschedulerPolicy says when to run and by which rules."));
}

function showFragmentation(capacity) {
  show("fragmentation",
    table("Resources", ["resource", "#requested", "#free", "#largest free piece"],
      capacity.resources.map((resource) => [resource.resource, percent(resource.requestedRatio), resource.free, resource.largestFree])),
    capacity.shapes.length ? table("Pods that still fit", ["shape", "#fit", "#nodes with room", "stranded"],
      capacity.shapes.map((shape) => [shape.shape, shape.fits, shape.nodesWithRoom,
        shape.resources.map((resource) => `${resource.resource} ${percent(resource.strandedRatio)}`).join(", ")])) : null,
    element("p", { class: "soft" }, "Stranded: the share of what is free that pods of the shape cannot use."));
}

// --- fragmentation over time ------------------------------------------------------------------------------------------

const WIDTH = 600;
const HEIGHT = 150;
const LEFT = 64; // of the plot, right of its percentages
const RESOURCES_DRAWN = 4;
let lastPlans = []; // those of the list, for what they freed

const DRAWINGS = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;

function drawing(name, attributes, ...children) {
  const made = document.createElementNS(DRAWINGS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function showHistory({ items, prometheus }) {
  const link = /^https?:/.test(prometheus)
    ? element("p", {}, element("a", { href: prometheus, rel: "noreferrer" }, "Longer periods")) : null;
  if (items.length < 2) {
    const since = items.length ? ["Measured once since the service began, ", time(items[0].measuredAt), ". "] : ["Nothing is measured yet. "];
    return show("history", element("p", { class: "soft" }, ...since, "What pods could not use of what is free is drawn from the second measurement on."), link);
  }
  const times = items.map((item) => Date.parse(item.measuredAt));
  const [first, last] = [times[0], times[times.length - 1]];
  const names = [...new Set(items.flatMap((item) => item.resources.map((resource) => resource.resource)))].slice(0, RESOURCES_DRAWN);
  const ratio = (item, name) => item.resources.find((resource) => resource.resource === name)?.fragmentedRatio;
  const highest = Math.max(0.01, ...items.flatMap((item) => names.map((name) => ratio(item, name) ?? 0)));
  const top = [0.05, 0.1, 0.2, 0.5, 1].find((ceiling) => ceiling >= highest) ?? 1;
  const x = (moment) => LEFT + (WIDTH - LEFT - 8) * (last > first ? (moment - first) / (last - first) : 0);
  const y = (share) => HEIGHT - 22 - (HEIGHT - 34) * share / top;
  const grid = [0, top / 2, top].map((share) => drawing("g", {},
    drawing("line", { class: "grid", x1: LEFT, x2: WIDTH - 8, y1: y(share), y2: y(share) }),
    drawing("text", { x: LEFT - 6, y: y(share) + 4, "text-anchor": "end" }, `${Math.round(1000 * share) / 10} %`)));
  const lines = names.map((name, index) => drawing("polyline", { class: `line c${index}`,
    points: items.flatMap((item, at) => ratio(item, name) === undefined ? [] : [`${x(times[at]).toFixed(1)},${y(ratio(item, name)).toFixed(1)}`]).join(" ") }));
  const freeing = lastPlans.filter((plan) => plan.freedNodeCount && plan.completionTime
    && Date.parse(plan.completionTime) >= first && Date.parse(plan.completionTime) <= last);
  const marks = freeing.map((plan) => drawing("line", { class: "mark", x1: x(Date.parse(plan.completionTime)), x2: x(Date.parse(plan.completionTime)), y1: y(top), y2: y(0) },
    drawing("title", {}, `${plan.name} freed ${count(plan.freedNodeCount, "node")}`)));
  const clock = (moment) => new Date(moment).toLocaleTimeString(undefined, { timeStyle: "short" });
  const now = items[items.length - 1];
  const summary = `Fragmented from ${clock(first)} to ${clock(last)}, at last ${names.map((name) => `${name} ${percent(ratio(now, name) ?? 0)}`).join(", ")}; the table has the figures`;
  const step = Math.ceil(items.length / 12);
  const rows = items.filter((_, index) => (items.length - 1 - index) % step === 0).reverse();
  show("history",
    drawing("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": summary }, ...grid, ...marks, ...lines,
      drawing("text", { x: LEFT, y: HEIGHT - 4 }, clock(first)), drawing("text", { x: WIDTH - 8, y: HEIGHT - 4, "text-anchor": "end" }, clock(last))),
    element("ul", { class: "legend" }, ...names.map((name, index) => element("li", {}, drawing("svg", { viewBox: "0 0 28 8", "aria-hidden": "true" },
      drawing("line", { class: `line c${index}`, x1: 0, x2: 28, y1: 4, y2: 4 })), name))),
    element("p", { class: "soft" }, `Share of each free resource that the cluster's pods could not use, on average.${marks.length ? " Dotted: plans that freed nodes." : ""}`),
    table("Fragmentation over time", ["measured", "#empty nodes", ...names.map((name) => `#${name}`)],
      rows.map((item) => [time(item.measuredAt), `${item.emptyNodes} of ${item.nodes}`, ...names.map((name) => ratio(item, name) === undefined ? "" : `${(100 * ratio(item, name)).toFixed(1)} %`)])),
    freeing.length ? table("Plans that freed nodes", ["plan", "over", "#freed"], freeing.map((plan) => [plan.name, time(plan.completionTime), plan.freedNodeCount])) : null,
    link);
}

function showHeld(list) {
  const rows = list.items.map((held) => [
    `${held.namespace}/${held.name}`,
    held.plan ? `plan ${held.plan}` : held.owners.map((owner) => `${owner.kind} ${owner.name}`).join(", ") || "pods by label",
    `${held.heldPlaces} of ${held.places}`, amounts(held.resources), held.nodes.join(", "), time(held.expiresAt, "no end")]);
  show("held", rows.length ? table("Reservations", ["reservation", "for", "#held", "resources", "nodes", "until"], rows)
    : element("p", {}, "Nothing is held. A Reservation holds capacity for pods that do not exist yet."));
}

function showCalendar(calendar) {
  const rows = calendar.items.slice(0, 100).map((entry) => [
    time(entry.time), entry.window, entry.what, entry.pods, entry.held, entry.taken,
    entry.nodes.join(", ") || Object.entries(entry.nodeSelector).map(([key, value]) => `${key}=${value}`).join(", ") || "any"]);
  const more = calendar.items.length - rows.length;
  show("calendar",
    rows.length ? table("Windows", ["when", "window", "what", "#pods", "#held", "#taken", "nodes"], rows)
      : element("p", {}, "Nothing opens or closes. A ReservationWindow holds capacity by the clock."),
    more ? element("p", { class: "soft" }, `${count(more, "later change")} more: `, element("code", {}, "berth calendar")) : null,
    ...calendar.problems.map((problem) => element("p", {}, `✗ ${problem.window} never opens: ${problem.problem}`)));
}

function showFindings(list) {
  const invariants = [...new Set(list.items.map((finding) => finding.invariant))];
  const sentences = list.items.length ? [] : [list.missingRights.length ? "There are no findings among what was looked for."
    : "There are no findings: Berth has left nothing behind, and what it says is true."];
  show("findings",
    ...sentences.map((sentence) => element("p", {}, sentence)),
    ...invariants.map((invariant) => {
      const findings = list.items.filter((finding) => finding.invariant === invariant);
      const shown = findings.slice(0, OBJECTS_SHOWN);
      const more = findings.length - shown.length;
      return element("div", { class: "finding" },
        element("h3", {}, findings[0].what),
        element("p", { class: "soft" }, findings[0].why),
        element("ul", {}, ...shown.map((finding) => element("li", {},
          `${finding.kind} ${finding.namespace && `${finding.namespace}/`}${finding.name}: ${finding.detail}`,
          finding.mayPass ? element("em", {}, " (may still pass by itself)") : null))),
        more ? element("p", { class: "soft" }, `${count(more, "object")} more: `, element("code", {}, "berth doctor")) : null,
        element("p", {}, findings[0].toDo),
        ...[...new Set(shown.map((finding) => finding.command))].slice(0, COMMANDS_SHOWN).map((command) => element("p", {}, element("code", {}, command))));
    }),
    list.missingRights.length ? element("p", { class: "soft" }, `More could be looked for and shown with the right to: ${list.missingRights.join(", ")}.`) : null);
}

const PARTS = [
  ["nodes", "/v1/nodes", showNodes],
  ["plans", "/v1/plans?limit=50", showPlans],
  ["policies", "/v1/policies", showPolicies],
  ["findings", "/v1/findings", showFindings],
  ["fragmentation", "/v1/fragmentation", showFragmentation],
  ["history", "/v1/fragmentation/history", showHistory],
  ["held", "/v1/reservations", showHeld],
  ["calendar", "/v1/calendar", showCalendar],
];

async function readPart([id, path, showPart]) {
  try {
    showPart(await (await ask(path)).json());
  } catch (error) {
    if (!(error instanceof Refused) || error.status === 401) throw error;
    show(id, element("p", { class: "soft" }, error.status === 403 ? `Not shown: ${error.message}.` : `Not shown now: ${error.message}.`));
  }
}

async function read() {
  clearTimeout(reading);
  const results = await Promise.allSettled(PARTS.map(readPart));
  const failure = results.find((result) => result.status === "rejected")?.reason;
  if (failure instanceof Refused) return signIn(token ? failure.message : "");
  readFailed = failure !== undefined;
  showConnection();
  if (!readFailed) {
    byId("sign-in").hidden = true;
    byId("cluster").hidden = false;
    byId("leave").hidden = !token;
  }
  clearTimeout(reading); // another reading may have begun meanwhile
  reading = setTimeout(read, READ_EVERY_MILLISECONDS);
}

function showConnection() {
  const connection = byId("connection");
  const text = readFailed || streamFailed ? "The connection is lost; trying again." : "Live";
  if (connection.textContent !== text) connection.textContent = text;
  connection.className = readFailed || streamFailed ? "badly" : "soft";
}

// --- the events of one plan -----------------------------------------------------------------------------------------

async function follow(name) {
  following?.abort();
  const controller = following = new AbortController();
  lastEventId = "";
  shownPlan = { name, moves: [], phase: "", message: "", predicted: null };
  while (!controller.signal.aborted) {
    try {
      const headers = lastEventId ? { "Last-Event-ID": lastEventId } : {};
      const answer = await ask(`/v1/plans/${encodeURIComponent(name)}/events`, { headers, signal: controller.signal });
      streamFailed = false;
      showConnection();
      if (answer.status === 204) return;
      await readEvents(answer.body, controller.signal);
      if (OVER.has(shownPlan?.phase)) return;
    } catch (error) {
      if (controller.signal.aborted) return;
      if (error instanceof Refused && error.status < 429) {
        show("plan", element("p", { class: "soft" }, `Not shown: ${error.message}.`));
        return;
      }
      streamFailed = true;
      showConnection();
    }
    await new Promise((resume) => setTimeout(resume, RECONNECT_MILLISECONDS));
  }
}

async function readEvents(body, signal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done || signal.aborted) return;
    buffer += value;
    const blocks = buffer.split("\n\n");
    buffer = blocks.pop();
    let changed = false;
    for (const block of blocks) changed = takeEvent(block) || changed;
    if (changed) showPlan();
  }
}

function takeEvent(block) {
  const fields = Object.fromEntries(block.split("\n").filter((line) => !line.startsWith(":")).map((line) => {
    const colon = line.indexOf(": ");
    return [line.slice(0, colon), line.slice(colon + 2)];
  }));
  if (fields.id) lastEventId = fields.id;
  if (!fields.event) return false;
  const data = JSON.parse(fields.data);
  switch (fields.event) {
    case "plan": shownPlan = data; return true;
    case "move": shownPlan.moves = shownPlan.moves.map((move) => move.index === data.index ? data : move); return true;
    case "phase": shownPlan = { ...shownPlan, ...data }; read(); return true;
    case "deleted": shownPlan = { ...shownPlan, phase: "Aborted", message: "the plan was deleted", moves: [] }; read(); return true;
    default: throw new Refused(data.status, data.detail);
  }
}

// --- decisions --------------------------------------------------------------------------------------------------------

async function confirmApproval(plan) {
  // The version that is approved is the one whose consequences the dialog names.
  const answer = await ask(`/v1/plans/${encodeURIComponent(plan.name)}`).catch((error) => error);
  if (answer instanceof Error) return confirm(`Approve ${plan.name}?`, [answer.message], "", null);
  const version = answer.headers.get("ETag");
  const looked = await answer.json();
  const freed = looked.predicted?.freedNodes ?? [];
  confirm(`Approve ${plan.name}?`, [
    `${count(looked.plannedMoves, "pod")} will be moved${looked.plannedEvictions ? `, ${looked.plannedEvictions} evicted without a place` : ""}`
      + `${freed.length ? `, and ${count(freed.length, "node")} freed: ${freed.slice(0, 5).join(", ")}${freed.length > 5 ? " and others" : ""}` : ""}.`,
    looked.predicted ? risk(looked.predicted) : "",
    "An approval cannot be taken back; a plan that runs can be aborted.",
  ], "Approve", () => ask(`/v1/plans/${encodeURIComponent(plan.name)}/approve`, { method: "POST", headers: { "If-Match": version } }));
}

function confirmAbort(plan) {
  const open = plan.moves.filter((move) => !MOVE_OVER.has(move.state)).length;
  confirm(`Abort ${plan.name}?`, [
    `Of ${count(plan.moves.length, "move")}, ${open} ${open === 1 ? "is" : "are"} not over: those that have not begun will not begin, and what is held for them is released.`,
    "Pods that are evicted already are awaited; nothing that has moved is moved back. It cannot be undone.",
  ], "Abort the plan", () => ask(`/v1/plans/${encodeURIComponent(plan.name)}/abort`, { method: "POST" }));
}

function confirm(heading, sentences, verb, act) {
  const dialog = byId("confirm");
  byId("confirm-heading").textContent = heading;
  byId("confirm-text").replaceChildren(...sentences.filter(Boolean).map((sentence) => element("p", {}, sentence)));
  byId("confirm-refused").textContent = "";
  const yes = byId("confirm-yes");
  yes.textContent = verb;
  yes.hidden = act === null;
  yes.disabled = false;
  yes.onclick = async () => {
    yes.disabled = true;
    try {
      await act();
      dialog.close();
      read();
    } catch (error) {
      byId("confirm-refused").textContent = error.message;
    }
  };
  dialog.showModal();
}

// --- who is looking -----------------------------------------------------------------------------------------------------

function signIn(reason) {
  following?.abort();
  shownPlan = null;
  token = "";
  sessionStorage.removeItem(TOKEN);
  byId("cluster").hidden = true;
  byId("leave").hidden = true;
  byId("connection").textContent = "";
  byId("sign-in").hidden = false;
  byId("refused").textContent = reason;
  byId("token").focus();
}

byId("nodes").addEventListener("focusin", chooseNode);
byId("nodes").addEventListener("click", chooseNode); // where a button that is touched is not focused
byId("nodes").addEventListener("keydown", goToNextNode);
byId("confirm-no").addEventListener("click", () => byId("confirm").close());
byId("leave").addEventListener("click", () => { clearTimeout(reading); location.reload(); sessionStorage.removeItem(TOKEN); });
byId("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  byId("token").value = "";
  sessionStorage.setItem(TOKEN, token);
  read();
});
read();
