const data = JSON.parse(byId("data").textContent);
const accountingParts = [
  ["compute", colours.forward], ["exposed tensor-parallel", colours.exposed_tp],
  ["exposed pipeline", colours.exposed_p2p], ["exposed data-parallel", colours.exposed_dp],
  ["optimizer", colours.optimizer], ["bubble, warm-up", colours.bubble_warmup],
  ["bubble, steady", colours.bubble_steady], ["bubble, drain", colours.bubble_drain],
];
const memoryParts = [
  ["weights", "#0072b2"], ["gradients", "#56b4e9"], ["optimizer", "#cc79a7"], ["activations", "#009e73"],
  ["logits", "#f0e442"], ["communication", "#e69f00"], ["reserve", "#9aa2ad"],
];
const number = (value, digits = 4) => value === null ? "–" : Number(value).toLocaleString("en-US", { maximumSignificantDigits: digits });

function fillTable(box, header, rows) {
  const table = document.createElement("table");
  const addRow = (parent, tag, cells) => {
    const row = parent.insertRow();
    for (const cell of cells) {
      const element = row.appendChild(document.createElement(tag));
      element.textContent = typeof cell === "number" || cell === null ? number(cell) : cell;
      if (typeof cell !== "string") element.className = "number";
    }
  };
  addRow(table.createTHead(), "th", header);
  const isNumber = column => rows.some(row => typeof row[column] !== "string");
  [...table.tHead.rows[0].cells].forEach((cell, column) => { cell.className = isNumber(column) ? "number" : ""; });
  const body = table.createTBody();
  rows.forEach(row => addRow(body, "td", row));
  box.replaceChildren(table);
}

// Numbers sort as numbers, the rest as text; the same heading again turns the order round.
function makeSortable(table) {
  const body = table.tBodies[0];
  const value = (row, column) => {
    const text = row.cells[column].textContent;
    const parsed = parseFloat(text.replaceAll(",", "").replace(/^[^\d.-]+/, ""));
    return Number.isNaN(parsed) || row.cells[column].className !== "number" ? text : parsed;
  };
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    heading.tabIndex = 0;
    const sort = () => {
      const sign = heading.ariaSort === "ascending" ? -1 : 1;
      [...table.tHead.rows[0].cells].forEach(other => { other.ariaSort = "none"; });
      heading.ariaSort = sign > 0 ? "ascending" : "descending";
      const order = (a, b) => a < b ? -sign : a > b ? sign : 0;
      [...body.rows].sort((a, b) => order(value(a, column), value(b, column))).forEach(row => body.append(row));
    };
    heading.addEventListener("click", sort);
    heading.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
  });
}

const charts = {};
function setChart(id, configuration) {
  charts[id]?.destroy();
  charts[id] = new Chart(byId(id), configuration);
}

function axis(title, extra = {}) {
  return {
    title: { display: true, text: title, color: cssColour("--soft") },
    ticks: { color: cssColour("--soft") }, grid: { color: cssColour("--line") }, ...extra,
  };
}
const chartBasics = () => ({ animation: false, responsive: true, maintainAspectRatio: false });
const legend = () => ({ position: "bottom", labels: { color: cssColour("--text"), boxWidth: 12, boxHeight: 12 } });

function drawPareto() {
  const front = new Set(data.front);
  const place = point => ({ x: point.hours, y: point.dollars, label: point.label });
  const priced = point => point.hours !== null && point.dollars !== null;
  const onFront = data.front.map(i => place(data.points[i]));
  const others = data.points.filter((point, i) => !front.has(i) && priced(point)).map(place);
  const tooltip = item => `${item.raw.label}: ${number(item.raw.x)} h, ${number(item.raw.y)} USD`;
  byId("pareto-chart").setAttribute("aria-label", `${data.points.length} plans, ${onFront.length} on the front`);
  setChart("pareto-chart", {
    type: "scatter",
    data: { datasets: [
      { label: "on the Pareto front", data: onFront, showLine: true, borderColor: "#d55e00", backgroundColor: "#d55e00", borderWidth: 2, pointRadius: 6, pointStyle: "rectRot" },
      { label: "other plans", data: others, backgroundColor: "#56b4e9", pointRadius: 4 },
    ] },
    options: { ...chartBasics(), scales: { x: axis("hours to finish"), y: axis("USD in all") },
      plugins: { legend: legend(), tooltip: { callbacks: { label: tooltip } } } },
  });
  fillTable(byId("pareto-table"), ["plan", "hours", "USD", "front"],
    data.points.map((point, i) => [point.label, point.hours, point.dollars, front.has(i) ? "yes" : ""]));
}

const stageLines = stage => [`stage ${stage.stage}`, ...(stage.gpu ? stage.gpu.split(', ') : [])];
const stageLabel = stage => stageLines(stage).join(", ");

function drawStages(trace) {
  const lines = Math.max(2, ...trace.stages.map(stage => stageLines(stage).length));
  byId("stages-box").style.height = 150 + (6 + 15 * lines) * trace.stages.length + "px";
  byId("stages-chart").setAttribute("aria-label", `Time of ${trace.stages.length} stages by what they do; numbers in the table`);
  setChart("stages-chart", {
    type: "bar",
    data: { labels: trace.stages.map(stageLines), datasets: accountingParts.map(([name, colour], part) => ({
      label: name, backgroundColor: colour, data: trace.stages.map(stage => stage.seconds[part]),
    })) },
    options: { ...chartBasics(), indexAxis: "y",
      scales: { x: axis("seconds", { stacked: true, max: trace.makespan }), y: axis("", { stacked: true, title: { display: false }, grid: { display: false }, ticks: { autoSkip: false, color: cssColour("--soft") } }) },
      plugins: { legend: legend(), tooltip: { callbacks: { label: item =>
        `${item.dataset.label}: ${secondsText(item.raw)} (${number(100 * item.raw / trace.makespan, 3)} %)` } } } },
  });
  fillTable(byId("stages-table"), ["stage (seconds)", ...accountingParts.map(part => part[0])],
    trace.stages.map(stage => [stageLabel(stage), ...stage.seconds]));
}

function drawMemory(trace) {
  byId("memory").hidden = trace.memory.length === 0;
  if (trace.memory.length === 0) return;
  const sum = row => row.gibibytes.reduce((a, b) => a + b, 0);
  const largest = Math.max(...trace.memory.map(row => Math.max(sum(row), row.capacity ?? 0)));
  const over = trace.memory.filter(row => row.capacity !== null && sum(row) > row.capacity).map(stageLabel);
  const risky = trace.memory.filter(row => row.verdict === "risky").map(stageLabel);
  byId("memory-note").textContent = "Activations at their peak. The line above a bar is the memory of its card." +
    (over.length ? ` Over it: ${over.join("; ")}.` : "") +
    (risky.length ? ` Risky, since published runs as full ran out of memory: ${risky.join("; ")}.` : "");
  byId("memory-chart").setAttribute("aria-label", `Memory of ${trace.memory.length} stages by what it holds; numbers in the table`);
  const capacity = { type: "line", label: "memory of the card", data: trace.memory.map(row => row.capacity), showLine: false,
    pointStyle: "line", pointRadius: Math.min(60, 0.3 * byId("memory").clientWidth / trace.memory.length), borderColor: cssColour("--text"), borderWidth: 2.5, stack: "capacity" };
  setChart("memory-chart", {
    type: "bar",
    data: { labels: trace.memory.map(stageLines), datasets: [capacity, ...memoryParts.map(([name, colour], part) => ({
      label: name, backgroundColor: colour, stack: "memory", maxBarThickness: 90, data: trace.memory.map(row => row.gibibytes[part]),
    }))] },
    options: { ...chartBasics(), layout: { autoPadding: false, padding: { top: 6 } },
      scales: { x: axis("", { stacked: true, title: { display: false }, grid: { display: false } }), y: axis("GiB", { stacked: true, suggestedMax: 1.05 * largest }) },
      plugins: { legend: { ...legend(), labels: { ...legend().labels, usePointStyle: false } },
        tooltip: { callbacks: { label: item => `${item.dataset.label}: ${number(item.raw)} GiB` } } } },
  });
  fillTable(byId("memory-table"), ["stage (GiB)", ...memoryParts.map(part => part[0]), "sum", "card"],
    trace.memory.map(row => [stageLabel(row), ...row.gibibytes, sum(row), row.capacity]));
}

const timeline = new Timeline(byId("timeline-canvas"), byId("timeline-info"));
function drawTimeline(trace) {
  const used = new Set(trace.spans.kind);
  byId("timeline-legend").replaceChildren(...data.kinds.filter((name, kind) => used.has(kind)).map(name => {
    const entry = document.createElement("span");
    entry.style.setProperty("--swatch", colours[name]);
    entry.textContent = words(name);
    return entry;
  }));
  const drawn = trace.spans.row.length;
  byId("timeline-note").textContent = "The compute stream of each rank, and below it, thin, what it sends." +
    (drawn < trace.total_spans ? ` Shown: ${number(drawn, 9)} of ${number(trace.total_spans, 9)} spans, ` +
      `${trace.rows.length} of ${trace.total_ranks} ranks` +
      (trace.drawn_until < trace.makespan ? `, the first ${secondsText(trace.drawn_until)}` : "") +
      "; the trace file holds all of them." : "");
  timeline.show(trace, data.kinds);
}

function drawLinks(trace) {
  byId("links").hidden = trace.links.length === 0;
  if (trace.links.length === 0) return;
  byId("links-note").textContent = "Share of its bandwidth that each link carries, over time; the stronger the colour, the busier." +
    (trace.links.length < trace.total_links ? ` The ${trace.links.length} busiest of ${trace.total_links} links.` : "");
  const height = 20, bottom = trace.links.length * height;
  const { context, width } = sharpContext(byId("links-canvas"), bottom + 28);
  const left = roomForNames(context, width, trace.links.map(link => link.name));
  const end = trace.link_bin * trace.links[0].bytes.length, area = width - left - 8;
  drawTimeAxis(context, { left, width: area, top: 0, bottom }, { start: 0, end });
  trace.links.forEach((link, row) => {
    link.bytes.forEach((bytes, bin) => {
      const share = Math.min(1, bytes / (link.bandwidth * trace.link_bin));
      const step = area / link.bytes.length;
      context.fillStyle = cssColour("--line");
      context.globalAlpha = 0.35;
      context.fillRect(left + bin * step, row * height + 2, step + 0.3, height - 4);
      context.fillStyle = cssColour("--accent");
      context.globalAlpha = share;
      context.fillRect(left + bin * step, row * height + 2, step + 0.3, height - 4);
    });
    context.globalAlpha = 1;
    context.textAlign = "left";
    context.fillStyle = cssColour("--text");
    context.fillText(link.name, 0, (row + 0.5) * height, left - 10);
  });
  const mean = link => link.bytes.reduce((a, b) => a + b, 0) / (link.bandwidth * end);
  const peak = link => Math.max(...link.bytes) / (link.bandwidth * trace.link_bin);
  fillTable(byId("links-table"), ["link", "GB/s", "mean %", "busiest %"],
    trace.links.map(link => [link.name, link.bandwidth / 1e9, 100 * mean(link), 100 * peak(link)]));
}

function drawFacts(trace) {
  byId("facts").replaceChildren(...trace.facts.map(([name, value]) => {
    const fact = document.createElement("div");
    fact.append(Object.assign(document.createElement("dt"), { textContent: name }),
      Object.assign(document.createElement("dd"), { textContent: value }));
    return fact;
  }));
  byId("attributes-list").replaceChildren(...trace.attributes.map(([name, value]) => {
    const details = document.createElement("details");
    details.append(Object.assign(document.createElement("summary"), { textContent: words(name) }),
      Object.assign(document.createElement("pre"), { textContent: value }));
    return details;
  }));
}

function drawRun() {
  const trace = data.traces[byId("run-choice").selectedIndex];
  if (trace) [drawFacts, drawStages, drawMemory, drawTimeline, drawLinks].forEach(draw => draw(trace));
}

function start() {
  const table = byId("plans-table");
  byId("plans").hidden = !table;
  if (table) makeSortable(table);
  byId("pareto").hidden = data.points.length === 0;
  const noRun = data.traces.length === 0;
  ["run", "stages", "memory", "timeline", "links", "attributes"].forEach(id => { byId(id).hidden = noRun; });
  data.traces.forEach(trace => byId("run-choice").add(new Option(trace.title)));
  byId("run-choice").addEventListener("change", drawRun);
  const range = () => timeline.view.end - timeline.view.start;
  byId("zoom-in").addEventListener("click", () => timeline.zoom(0.5));
  byId("zoom-out").addEventListener("click", () => timeline.zoom(2));
  byId("zoom-left").addEventListener("click", () => timeline.move(-range() / 3));
  byId("zoom-right").addEventListener("click", () => timeline.move(range() / 3));
  byId("zoom-all").addEventListener("click", () => timeline.zoom(Infinity));
  const drawAll = () => { if (data.points.length) drawPareto(); drawRun(); };
  drawAll();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  window.addEventListener("resize", () => { timeline.draw(); drawLinks(data.traces[byId("run-choice").selectedIndex] ?? { links: [] }); });
}
start();
