// SPDX-License-Identifier: Apache-2.0
// Draws the report: chooses a measure, a process and one of its kinds of memory, hands the tree to d3-flame-graph, and fills the table.
// All text goes through textContent: names in the data come from traced programs.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const NAMES = {
    inuse_space: ["In use", "in use"], inuse_objects: ["In use, objects", "in use"],
    alloc_space: ["Allocated", "allocated"], alloc_objects: ["Allocated, objects", "allocated"],
  };
  const TYPE_ORDER = ["inuse_space", "inuse_objects", "alloc_space", "alloc_objects"];
  const DETAILS = { plain: "without the interpreter", folded: "the program's own", all: "all" };
  const FIRST_ROWS = 25;
  // Thousands of frames of a pixel take the browser seconds to draw; they can be seen by zooming in.
  const MANY_FRAMES = 5000;
  const MIN_PIXELS = 0.5, MIN_PIXELS_OF_MANY = 2;
  const CALM = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  const DARK = window.matchMedia("(prefers-color-scheme: dark)");

  const state = { type: data.defaultType, view: 0, detail: 0, sort: "own", allRows: false, term: "" };
  let chart = null;
  let root = null; // the hierarchy of the chart that is shown
  let zoomed = null;
  let cursor = null;

  // ---- words and numbers

  function amount(value, unit) {
    if (unit !== "bytes") return value.toLocaleString("en");
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let number = value, step = 0;
    while (number >= 1023.5 && step < units.length - 1) { number /= 1024; step += 1; }
    if (step === 0) return `${value} B`;
    return `${number.toFixed(number < 9.995 ? 2 : number < 99.95 ? 1 : 0)} ${units[step]}`;
  }
  function exact(value, unit) { return `${value.toLocaleString("en")} ${unit === "count" ? "objects" : unit}`; }
  function share(value, total) {
    if (!total) return "0 %";
    const percent = 100 * value / total;
    return percent > 0 && percent < 0.1 ? "< 0.1 %" : `${percent.toFixed(1)} %`;
  }
  function unit() { return data.types[state.type].unit; }
  function typeName(type) { return (NAMES[type.name] || [`${type.name} (${type.unit})`, type.name]); }
  function place(file, line) { return file && line ? `${file}:${line}` : file; }
  function wholePlace({ file, line, library }) { return library ? `${place(file, line)} in ${library}` : place(file, line); }
  function shortPlace(file, line) { return place(file.split("/").pop(), line); }
  function element(tag, text, className) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  // ---- the tree

  function tree(type) {
    const view = data.views[state.view];
    if (!view) return sum("", []);
    const parts = view.parts.map(([number, name]) => groupTree(data.groups[number], name, type));
    return parts.length === 1 ? parts[0] : sum(view.process, parts);
  }
  function sum(label, children) {
    const value = children.reduce((all, child) => all + child.value, 0);
    return { name: label, file: "", line: 0, kind: "process", library: "", value, own: 0, children };
  }
  function groupTree(group, label, type) {
    const nodes = [], tops = [];
    for (const [parent, frame, line, ...values] of group.nodes[state.detail]) {
      const [name, file, kind, library] = data.frames[frame];
      const node = { name, file, line, kind, library, value: values[type], own: values[type], children: [] };
      nodes.push(node);
      if (parent < 0) { tops.push(node); } else { nodes[parent].children.push(node); nodes[parent].own -= node.value; }
    }
    // A frame without anything of this measure is not drawn.
    for (const node of nodes) node.children = node.children.filter((child) => child.value > 0);
    return sum(label, tops.filter((node) => node.value > 0));
  }

  // ---- colours: one hue a file, so that a library keeps its colour; the pastel carries black text in both modes

  function hue(text) {
    let hash = 2166136261;
    for (let i = 0; i < text.length; i += 1) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
    return (hash >>> 0) % 300 + 20; // leaves out the reds and pinks of matches
  }
  function colour(node) {
    const { kind, file, library, name } = node.data;
    const dark = DARK.matches;
    if (node.highlight) return dark ? "#ff6ec7" : "#ff5fbf";
    if (kind === "process") return dark ? "#8d97a3" : "#cfd5dc";
    if (kind === "unknown") return dark ? "#a39c92" : "#e3ddd3";
    const [saturation, light] = kind === "native" ? [18, dark ? 64 : 78] : [dark ? 45 : 62, dark ? 66 : 78];
    return `hsl(${hue(library || file || name)} ${saturation}% ${light}%)`;
  }
  function legend() {
    const entries = [["python", "Python (one colour a file)", "/python"], ["native", "native code", "/native"],
      ["unknown", "stack not known: the name says why", ""], ["process", "process or GPU", ""]];
    const kinds = new Set(data.frames.map((frame) => frame[2])).add("process");
    byId("legend").replaceChildren(...entries.filter(([kind]) => kinds.has(kind)).map(([kind, text, file]) => {
      const item = element("span");
      const box = element("i");
      box.style.background = colour({ data: { kind, file, name: "" } });
      item.append(box, text);
      return item;
    }));
  }

  // ---- the chart

  function draw() {
    const top = tree(state.type);
    const container = byId("chart");
    d3.select(container).selectAll("*").remove();
    root = zoomed = cursor = chart = null;
    header(top.value);
    table();
    const many = d3.sum(data.views[state.view]?.parts || [], ([number]) => data.groups[number].nodes[state.detail].length) > MANY_FRAMES;
    byId("narrow").hidden = !many || top.value === 0;
    byId("narrow").textContent = `Frames narrower than ${MIN_PIXELS_OF_MANY} pixels appear when you zoom in.`;
    byId("empty").hidden = top.value > 0;
    container.hidden = top.value === 0;
    byId("reset").disabled = true;
    describe(null);
    if (top.value === 0) {
      const what = typeName(data.types[state.type])[1];
      const view = data.views[state.view];
      byId("empty").textContent = view
        ? `${view.memory ? `No ${view.memory}` : "Nothing"} was ${what} in ${view.process}. Choose something else above.` : `Nothing was ${what}.`;
      return;
    }
    chart = flamegraph.default()
      .width(width()).cellHeight(22).inverted(true).minFrameSize(many ? MIN_PIXELS_OF_MANY : MIN_PIXELS).resetHeightOnZoom(true)
      .transitionDuration(CALM ? 0 : 250)
      .sort((a, b) => b.data.value - a.data.value || d3.ascending(a.data.name, b.data.name))
      .setColorMapper(colour)
      .setDetailsHandler((text) => { if (!text) describe(cursor); })
      .onHover(describe)
      .onClick(zoomChanged);
    chart.getName((node) => node.data.line ? `${node.data.name}  ${shortPlace(node.data.file, node.data.line)}` : node.data.name);
    chart.setLabelHandler(sentence);
    chart.setSearchMatch((node, term) => matches(node.data, term));
    chart.setSearchHandler(() => {});
    d3.select(container).datum(top).call(chart);
    root = zoomed = d3.select(container).datum();
    describe(null);
    if (state.term) search();
  }
  function width() { return Math.max(320, Math.floor(byId("chart").parentElement.clientWidth)); }
  function zoomChanged(node) {
    zoomed = node;
    cursor = node === root ? null : node;
    byId("reset").disabled = node === root;
    describe(cursor);
    markCursor();
  }
  function resetZoom() { if (chart) chart.resetZoom(); }
  function sentence(node) {
    const { name, value } = node.data;
    return `${name}\n${wholePlace(node.data)}\n${amount(value, unit())} (${exact(value, unit())}), ${share(value, root ? root.data.value : value)}`;
  }
  function describe(node) {
    const box = byId("details");
    const shown = node || root;
    if (!shown) { box.replaceChildren(); return; }
    const { name, value, own } = shown.data;
    const numbers = element("span", undefined, "numbers");
    for (const [word, number] of [["total", value], ["self", own]]) {
      const part = element("span", `${word} ${amount(number, unit())}, ${share(number, root.data.value)}`);
      part.title = exact(number, unit());
      numbers.append(part);
    }
    if (unit() === "bytes") numbers.append(element("span", exact(value, unit()), "muted"));
    box.replaceChildren(element("b", name), element("span", wholePlace(shown.data), "place"), numbers);
  }

  // ---- search

  function matches(node, term) {
    const wanted = term.toLowerCase();
    return node.kind !== "process" && (node.name.toLowerCase().includes(wanted) || wholePlace(node).toLowerCase().includes(wanted));
  }
  function matchedValue() {
    let found = 0;
    const waiting = [root];
    while (waiting.length) {
      const node = waiting.pop();
      if (matches(node.data, state.term)) { found += node.data.value; } else { waiting.push(...(node.children || [])); }
    }
    return found;
  }
  function search() {
    state.term = byId("search").value.trim();
    byId("matches").textContent = "";
    table();
    if (!chart) return;
    if (!state.term) { chart.clear(); markCursor(); return; }
    chart.search(state.term);
    markCursor();
    const found = matchedValue();
    byId("matches").textContent = found ? `${amount(found, unit())} (${share(found, root.data.value)}) in matches` : "no match";
  }

  // ---- keyboard

  function siblings(node) {
    const all = node.parent ? node.parent.children.filter((other) => other.x1 > other.x0) : [node];
    return all.sort((a, b) => a.x0 - b.x0);
  }
  function step(key) {
    const from = cursor || zoomed;
    if (key === "ArrowUp") return from.parent || from;
    if (key === "ArrowDown") return (from.children || []).filter((node) => node.x1 > node.x0).sort((a, b) => a.x0 - b.x0)[0] || from;
    const row = siblings(from);
    return row[row.indexOf(from) + (key === "ArrowLeft" ? -1 : 1)] || from;
  }
  function markCursor() {
    d3.select("#chart").selectAll("g.frame").classed("cursor", (node) => node === cursor);
  }
  function chartKey(event) {
    if (!chart || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.startsWith("Arrow")) {
      cursor = cursor ? step(event.key) : (event.key === "ArrowDown" ? step(event.key) : zoomed);
      describe(cursor);
      markCursor();
    } else if (event.key === "Enter" || event.key === " ") {
      if (cursor) chart.zoomTo(cursor);
    } else {
      return;
    }
    event.preventDefault();
  }
  function pageKey(event) {
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName) && event.target.type !== "radio";
    if (event.key === "/" && !typing) { event.preventDefault(); byId("search").focus(); }
    if (event.key === "Escape") {
      if (event.target.id === "search" && event.target.value) { event.target.value = ""; search(); } else { resetZoom(); }
    }
  }

  // ---- table

  function table() {
    const view = data.views[state.view];
    const type = state.type;
    const total = viewTotal(view, type);
    const columns = [["own", "Self"], ["total", "Total"]];
    byId("columns").replaceChildren(...columns.flatMap(([key, word]) => {
      const head = element("th", undefined, "number");
      head.setAttribute("aria-sort", state.sort === key ? "descending" : "none");
      const button = element("button", state.sort === key ? `${word} ↓` : word);
      button.type = "button";
      button.title = `Sort by ${word.toLowerCase()}`;
      button.addEventListener("click", () => { state.sort = key; table(); });
      head.append(button);
      return [head, element("th", "%", "number")];
    }), element("th", "Function"), element("th", "File and heaviest line"));
    const rows = (view ? view.functions[state.detail] : [])
      .map(([frame, line, own, sum]) => ({ name: data.frames[frame][0], file: data.frames[frame][1], library: data.frames[frame][3], line, own: own[type], total: sum[type] }))
      .filter((row) => row.total > 0 && (!state.term || matches({ ...row, kind: "" }, state.term)))
      .sort((a, b) => b[state.sort] - a[state.sort] || b.total - a.total || d3.ascending(a.name, b.name));
    const shown = state.allRows ? rows : rows.slice(0, FIRST_ROWS);
    byId("rows").replaceChildren(...shown.map((row) => tableRow(row, total)));
    byId("more").hidden = shown.length === rows.length;
    byId("more").textContent = `Show all ${rows.length.toLocaleString("en")} functions`;
  }
  function viewTotal(view, type) {
    return d3.sum(view ? view.parts : [], ([number]) => d3.sum(data.groups[number].nodes[state.detail], (node) => node[0] < 0 ? node[3 + type] : 0));
  }
  function tableRow(row, total) {
    const line = element("tr");
    for (const value of [row.own, row.total]) {
      const none = value ? "" : " none";
      const cell = element("td", amount(value, unit()), `number${none}`);
      cell.title = exact(value, unit());
      const part = element("td", share(value, total), `number share${none}`);
      part.style.setProperty("--share", total ? Math.min(100, 100 * value / total) : 0);
      line.append(cell, part);
    }
    const name = element("td");
    const button = element("button", row.name);
    button.type = "button";
    button.title = "Show where it is in the graph";
    button.addEventListener("click", () => {
      byId("search").value = byId("search").value === row.name ? "" : row.name;
      search();
    });
    name.append(button);
    const where = element("td", place(row.file, row.line), "place");
    where.title = wholePlace(row);
    line.append(name, where);
    return line;
  }

  // ---- the parts around

  function header(value) {
    const type = data.types[state.type];
    const view = data.views[state.view];
    const [, participle] = typeName(type);
    byId("title").textContent = view ? view.process : "nothing recorded";
    document.title = `GPU memory: ${byId("title").textContent}`;
    byId("amount-value").textContent = amount(value, type.unit) + (type.unit === "count" ? " objects" : "");
    byId("amount-value").title = exact(value, type.unit);
    const other = data.types.findIndex((entry) => entry.unit === "count" && entry.name.split("_")[0] === type.name.split("_")[0]);
    const objects = type.unit === "bytes" && other >= 0 ? viewTotal(view, other) : 0;
    byId("amount-what").title = view && view.parts.length === 1 ? data.groups[view.parts[0][0]].gpu : "";
    byId("amount-what").textContent = (view && view.memory ? `${view.memory}, ` : "") + participle + (objects ? ` by ${objects.toLocaleString("en")} ${objects === 1 ? "allocation" : "allocations"}` : "");
  }
  function origin() {
    const parts = [data.source];
    if (data.takenUtc) parts.push(`taken ${new Date(data.takenUtc).toLocaleString()}`);
    if (data.durationSeconds > 0) parts.push(`recorded for ${data.durationSeconds.toFixed(1)} s`);
    byId("origin").textContent = parts.join(" · ");
    byId("origin").title = data.takenUtc;
    byId("made").textContent = `Written by gpuheap ${data.version}. This page is one file and loads nothing.`;
  }
  function notes() {
    byId("notes-section").hidden = data.notes.length === 0;
    byId("notes").replaceChildren(...data.notes.map((note) => element("li", note, /^lost |: out of memory/.test(note) ? "warn" : "")));
  }
  function typeChoice() {
    const rank = (name) => (TYPE_ORDER.indexOf(name) + TYPE_ORDER.length + 1) % (TYPE_ORDER.length + 1);
    const order = data.types.map((_, number) => number).sort((a, b) => rank(data.types[a].name) - rank(data.types[b].name));
    byId("types").replaceChildren(...order.map((number) => {
      const label = element("label");
      const input = element("input");
      Object.assign(input, { type: "radio", name: "type", value: String(number), checked: number === state.type });
      input.addEventListener("change", () => { state.type = number; draw(); });
      label.append(input, element("span", typeName(data.types[number])[0]));
      return label;
    }));
  }
  function memoryChoice() {
    const options = data.views.map((view, number) => [view, number]).filter(([view]) => view.process === data.views[state.view].process);
    byId("memory").replaceChildren(...options.map(([view, number]) => new Option(view.memory, String(number))));
    byId("memory").value = String(state.view);
  }
  function choose(number) {
    state.view = number;
    state.allRows = false;
    memoryChoice();
    draw();
  }
  function viewChoice() {
    const first = new Map(); // the first view of each process
    data.views.forEach((view, number) => { if (!first.has(view.process)) first.set(view.process, number); });
    byId("process-label").hidden = first.size < 2;
    byId("memory-label").hidden = new Set(data.views.map((view) => view.memory)).size < 2;
    byId("process").replaceChildren(...[...first].map(([process, number]) => new Option(process, String(number))));
    byId("process").addEventListener("change", (event) => {
      const number = Number(event.target.value);
      const { process } = data.views[number];
      const { memory } = data.views[state.view]; // stays chosen where the other process has it
      const same = data.views.findIndex((view) => view.process === process && view.memory === memory);
      choose(same < 0 ? number : same);
    });
    byId("memory").addEventListener("change", (event) => choose(Number(event.target.value)));
    if (data.views.length) memoryChoice();
  }

  function detailChoice() {
    byId("detail-label").hidden = data.details.length < 2;
    byId("detail").replaceChildren(...data.details.map((name, number) => new Option(DETAILS[name], String(number))));
    byId("detail").addEventListener("change", (event) => { state.detail = Number(event.target.value); draw(); });
  }

  origin();
  notes();
  legend();
  typeChoice();
  viewChoice();
  detailChoice();
  byId("search").addEventListener("input", search);
  byId("reset").addEventListener("click", resetZoom);
  byId("more").addEventListener("click", () => { state.allRows = true; table(); });
  byId("chart").addEventListener("keydown", chartKey);
  document.addEventListener("keydown", pageKey);
  DARK.addEventListener("change", () => { legend(); draw(); });
  let resizing = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(() => { if (chart) chart.width(width()).update(); markCursor(); });
  });
  draw();
})();
