// Shows the groups of a box, and of one group, #name, its tree. It only reads: /v1/traffic each
// second, and /v1/trees/NAME every five.
"use strict";

const seconds = 1, treeEvery = 5;
let before = null; // the traffic that was read last
let tree = null, treeOf = "", treeAge = 0, treeAsked = false, treeProblem = "";

const $ = (id) => document.getElementById(id);

function element(name, text, className) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

function svg(name, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store" });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error ? body.error.message : answer.statusText);
  return body;
}

// amount writes a number with at most four characters and its factor.
function amount(n) {
  for (const factor of ["", "K", "M", "G"]) {
    if (n < 9.95 && (factor || (n > 0 && n < 0.95))) return n.toFixed(1) + factor;
    if (n < 999.5) return n.toFixed(0) + factor;
    n /= 1000;
  }
  return n.toFixed(0) + "T";
}

function age(s) {
  if (s === 0) return "0";
  if (s < 0.9995) return (1000 * s).toFixed(s < 0.01 ? 1 : 0) + " ms";
  return s < 60 ? s.toFixed(1) + " s" : (s / 60).toFixed(0) + " min";
}

const bits = (bytes) => amount(8 * bytes) + "b/s";

// rate is the growth of a total in a second. Totals that have fallen were begun anew.
const rate = (was, is, t) => (t > 0 && is >= was ? (is - was) / t : 0);

// between computes rates from two readings, as rocast top does.
function between(was, now) {
  const t = was ? (new Date(now.at) - new Date(was.at)) / 1000 : 0;
  return now.groups.map((g) => {
    const old = (was && was.groups.find((b) => b.name === g.name)) || g;
    const packets = rate(old.packets, g.packets, t), bytes = rate(old.bytes, g.bytes, t);
    const size = packets > 0 ? bytes / packets : g.packets > 0 ? g.bytes / g.packets : 0;
    const receivers = g.receivers.map((r) => {
      const b = old.receivers.find((b) => b.ip === r.ip && b.remoteQPN === r.remoteQPN) || r;
      const of = (key) => rate(b[key], r[key], t);
      return { ...r, name: r.box ? "box " + r.box : r.ip, goodput: of("acknowledged") * size,
        nak: of("naks"), rnr: of("rnrs"), cnp: of("cnps"), repair: of("repaired") };
    });
    const drops = Object.entries(g.drops || {}).reduce((sum, [k, n]) => sum + rate((old.drops || {})[k] || 0, n, t), 0);
    const most = Math.max(0, ...receivers.map((r) => r.lag)), last = receivers.filter((r) => most > 0 && r.lag === most);
    const all = last.length > 1 && last.length === receivers.length; // then none is the last
    const slowest = last.find((r) => r.trouble) || (all ? { ...last[0], name: "all" } : last[0]);
    return { ...g, receivers, drops, slowest, in: bytes, out: rate(old.copyBytes, g.copyBytes, t),
      repair: receivers.reduce((sum, r) => sum + r.repair, 0) };
  });
}

function rows(table, list) {
  $(table).tBodies[0].replaceChildren(...list.map((cells) => {
    const row = element("tr");
    row.append(...cells.map((c) => (c instanceof Node ? c : element("td", c))));
    return row;
  }));
}

function showGroups(groups, more) {
  rows("groups", groups.map((g) => {
    const name = element("td"), link = element("a", g.name);
    link.href = "#" + encodeURIComponent(g.name);
    name.append(link);
    const s = g.slowest;
    return [name, element("td", g.state, g.state === "ready" ? "good" : "bad"), bits(g.in), bits(g.out), s ? s.name : "–", s ? amount(s.lag) : "0",
      s ? age(s.lagSeconds) : "0", amount(g.repair), amount(g.drops), g.carrier || "–", g.reason || ""];
  }));
  $("more").textContent = more > 0 ? "and " + more + " more groups" : "";
}

function showGroup(g) {
  $("group").hidden = !g;
  if (!g) return;
  document.querySelector("#group h2").textContent = g.name + ": " + g.state;
  $("reason").textContent = g.reason || "";
  rows("receivers", g.receivers.map((r) => [r.name, r.port || "–", element("td", r.trouble || r.state, r.trouble ? "bad" : "good"), bits(r.goodput),
    amount(r.lag), age(r.lagSeconds), amount(r.nak), amount(r.rnr), amount(r.cnp), amount(r.repair), r.reason || ""]));
  draw(g);
}

// node is a host or a box of the tree: the lines of its text, and what is behind it.
function node(name, lines, state, bad, below) {
  return { name, lines, state, bad, below: below || [] };
}

// receiverNode is a receiver of this box, with the box that is behind it.
function receiverNode(r, trees) {
  const below = r.box && trees.find((t) => t.box === r.box);
  const lines = [bits(r.goodput) + ", lag " + amount(r.lag) + " / " + age(r.lagSeconds), "repairs " + amount(r.repair) + "/s"];
  return node(r.name, lines, r.trouble || r.state, !!r.trouble || r.state !== "ready", below ? behind(below) : []);
}

// behind are the members and boxes behind another box, as that box tells.
function behind(t) {
  if (t.reason) return [node("not asked", [], t.reason, true)];
  const sent = t.group.progress ? t.group.progress.sent : null;
  return (t.group.members || []).filter((m) => m.role !== "source" && m.ip !== undefined).map((m) => {
    const link = (t.group.links || []).findIndex((l) => l.remote.ip === m.ip && l.local.qpn === m.remoteQPN);
    if (link < 0 && m.remoteIP) return null; // the way up
    const lag = sent !== null && m.acked !== undefined ? (sent - m.acked) & 0xffffff : 0;
    const repaired = m.repair ? m.repair.repaired : 0;
    return node(link < 0 ? m.ip : "box " + t.group.links[link].box, ["lag " + amount(lag), "repaired " + amount(repaired)], m.state, m.state !== "ready",
      link < 0 || !(t.below || [])[link] ? [] : behind(t.below[link]));
  }).filter(Boolean);
}

const width = 190, height = 78, gapX = 70, gapY = 12;

// place gives a node and all behind it a place, and returns the height that they take.
function place(n, x, y) {
  let below = 0;
  for (const b of n.below) below += place(b, x + width + gapX, y + below) + gapY;
  const taken = Math.max(height, below - gapY);
  n.x = x;
  n.y = y + (taken - height) / 2;
  return taken;
}

function put(to, n) {
  const g = svg("g", { class: n.bad ? "bad" : "good", "data-name": n.name });
  g.append(svg("rect", { x: n.x, y: n.y, width, height, rx: 6 }), svg("text", { x: n.x + 10, y: n.y + 19, class: "name" }, n.name),
    svg("text", { x: n.x + 10, y: n.y + 36, class: "state" }, n.state.length > 28 ? n.state.slice(0, 27) + "…" : n.state),
    ...n.lines.map((line, i) => svg("text", { x: n.x + 10, y: n.y + 53 + 16 * i }, line)));
  g.append(svg("title", {}, n.name + ": " + n.state));
  for (const b of n.below) {
    const x = n.x + width, y = n.y + height / 2, to = b.y + height / 2;
    g.append(svg("path", { class: b.bad && !b.isHere ? "bad" : "good", d: `M${x},${y} C${x + gapX / 2},${y} ${x + gapX / 2},${to} ${b.x},${to}` }));
  }
  to.append(g);
  for (const b of n.below) put(to, b);
}

function draw(g) {
  const mine = treeOf === g.name ? tree : null;
  const source = mine && (mine.group.members || []).find((m) => m.role === "source" || m.part === "source");
  const box = node(mine && mine.box ? "box " + mine.box : "this box", [bits(g.in) + " in", bits(g.out) + " out"], g.state, g.state !== "ready",
    g.receivers.map((r) => receiverNode(r, (mine && mine.below) || [])));
  box.isHere = true; // it is bad because of what is behind it, and answers
  const root = node(source ? source.ip : "source", [bits(g.in)], "source", false, [box]);
  const tall = place(root, 2, 2) + 4;
  const deep = (n) => Math.max(n.x + width, ...n.below.map(deep));
  const canvas = $("tree");
  canvas.replaceChildren();
  canvas.setAttribute("width", deep(root) + 4);
  canvas.setAttribute("height", tall);
  canvas.setAttribute("viewBox", `0 0 ${deep(root) + 4} ${tall}`);
  put(canvas, root);
}

// chosen is the name of the group after the # of the address.
function chosen() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // somebody has edited it
  }
}

// askFor adds to what is known of the groups the one with this name.
async function askFor(name, now) {
  if (!now.groups.some((g) => g.name === name)) {
    now.groups.push((await ask("/v1/traffic/" + encodeURIComponent(name))).groups[0]);
  }
}

// askForTree reads the tree of a group. Other boxes may be slow to answer, so nothing waits for it.
async function askForTree(name) {
  if (treeAsked || (treeOf === name && ++treeAge < treeEvery)) return;
  treeAsked = true;
  try {
    tree = await ask("/v1/trees/" + encodeURIComponent(name));
    treeProblem = "";
  } catch (e) {
    tree = null;
    treeProblem = e.message;
  }
  treeOf = name;
  treeAge = 0;
  treeAsked = false;
}

async function show() {
  const name = chosen();
  let problem = "";
  try {
    const now = await ask("/v1/traffic");
    if (name) {
      await askFor(name, now).catch((e) => { problem = e.message; }); // the other groups are shown all the same
      askForTree(name);
      if (!problem && treeOf === name) problem = treeProblem;
    }
    const groups = between(before, now);
    before = now;
    $("box").textContent = groups.length + " groups, " + new Date(now.at).toLocaleTimeString();
    showGroups(groups, now.more);
    showGroup(groups.find((g) => g.name === name));
  } catch (e) {
    problem = "what is shown is old: " + e.message;
  }
  $("problem").textContent = problem && "rocastd: " + problem;
}

async function run() {
  await show();
  setTimeout(run, 1000 * seconds);
}

addEventListener("hashchange", show);
run();
