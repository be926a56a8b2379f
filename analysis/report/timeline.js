"use strict";
// Colours of Okabe and Ito (2008), told apart with any kind of colour vision; idle time is grey.
const colours = {
  forward: "#0072b2", backward: "#56b4e9", weight_gradient: "#009e73", optimizer: "#cc79a7",
  exposed_tp: "#e69f00", exposed_p2p: "#d55e00", exposed_dp: "#f0e442",
  bubble_warmup: "#c9ced6", bubble_steady: "#9aa2ad", bubble_drain: "#737c88",
  send: "#d55e00", all_reduce: "#f0e442", reduce_scatter: "#e6a800", all_gather: "#b8a200",
  tensor_collective: "#e69f00", context_exchange: "#c88700", expert_exchange: "#a86f00",
};
const words = name => name.replaceAll("_", " ");
const byId = id => document.getElementById(id);
const cssColour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function secondsText(seconds) {
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  const [factor, unit] = size < 1e-3 ? [1e6, "µs"] : size < 1 ? [1e3, "ms"] : [1, "s"];
  return `${Number((seconds * factor).toPrecision(4))} ${unit}`;
}

// A canvas as sharp as the screen; returns its drawing context in CSS pixels.
function sharpContext(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  context.textBaseline = "middle";
  return { context, width };
}

// Pixels left of a chart: the widest name, but at most half of the width.
function roomForNames(context, width, names) {
  return Math.min(width / 2, 12 + Math.max(...names.map(name => context.measureText(name).width)));
}

// Round steps of 1, 2 or 5 times a power of ten that give about `count` ticks.
function tickStep(range, count) {
  const power = 10 ** Math.floor(Math.log10(range / count));
  return [1, 2, 5, 10].map(m => m * power).find(step => range / step <= count);
}

function drawTimeAxis(context, area, view) {
  const step = tickStep(view.end - view.start, Math.max(2, area.width / 110));
  context.textAlign = "center";
  context.lineWidth = 1;
  for (let tick = Math.ceil(view.start / step) * step; tick <= view.end; tick += step) {
    const x = area.left + (tick - view.start) / (view.end - view.start) * area.width;
    context.strokeStyle = cssColour("--line");
    context.beginPath();
    context.moveTo(x, area.top);
    context.lineTo(x, area.bottom + 4);
    context.stroke();
    context.fillStyle = cssColour("--soft");
    context.fillText(secondsText(tick), Math.min(x, area.left + area.width - 24), area.bottom + 14);
  }
}

// The Gantt chart of one run: computing above, transfers as a thin line below, for each rank.
class Timeline {
  constructor(canvas, info) {
    this.canvas = canvas;
    this.info = info;
    this.left = 0;
    canvas.addEventListener("wheel", event => this.onWheel(event), { passive: false });
    canvas.addEventListener("pointerdown", event => { this.dragX = event.offsetX; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointerup", () => { this.dragX = undefined; });
    canvas.addEventListener("pointermove", event => this.onMove(event));
  }

  show(trace, kinds) {
    this.trace = trace;
    this.kinds = kinds;
    this.view = { start: 0, end: trace.drawn_until };
    this.rowHeight = Math.max(16, Math.min(34, Math.floor(720 / Math.max(1, trace.rows.length))));
    this.draw();
  }

  get width() { return this.canvas.clientWidth - this.left - 8; }
  timeAt(x) { return this.view.start + (x - this.left) / this.width * (this.view.end - this.view.start); }
  xAt(time) { return this.left + (time - this.view.start) / (this.view.end - this.view.start) * this.width; }

  zoom(factor, centre = (this.view.start + this.view.end) / 2) {
    const range = Math.min(this.trace.drawn_until, Math.max(1e-8, (this.view.end - this.view.start) * factor));
    const share = (centre - this.view.start) / (this.view.end - this.view.start);
    this.moveTo(centre - share * range, range);
  }
  move(seconds) { this.moveTo(this.view.start + seconds, this.view.end - this.view.start); }
  moveTo(start, range) {
    const bounded = Math.max(0, Math.min(this.trace.drawn_until - range, start));
    this.view = { start: bounded, end: bounded + range };
    this.draw();
  }

  onWheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;  // a plain wheel scrolls the page
    event.preventDefault();
    this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.timeAt(event.offsetX));
  }
  onMove(event) {
    if (this.dragX !== undefined) {
      const seconds = (this.dragX - event.offsetX) / this.width * (this.view.end - this.view.start);
      this.dragX = event.offsetX;
      this.move(seconds);
    }
    this.info.textContent = this.describe(event.offsetX, event.offsetY) || "\u00a0";
  }

  describe(x, y) {
    const spans = this.trace.spans;
    const row = Math.floor(y / this.rowHeight), time = this.timeAt(x) * 1e9;
    const network = (y % this.rowHeight) / this.rowHeight > 0.76 ? 1 : 0;
    for (let i = 0; i < spans.row.length; ++i) {
      if (spans.row[i] !== row || spans.stream[i] !== network || spans.start[i] > time || spans.end[i] < time) continue;
      const microbatch = spans.microbatch[i] < 0 ? "" : ` of microbatch ${spans.microbatch[i]}`;
      return `${this.trace.rows[row]}: ${words(this.kinds[spans.kind[i]])}${microbatch}, ` +
        `${secondsText((spans.end[i] - spans.start[i]) / 1e9)} from ${secondsText(spans.start[i] / 1e9)}`;
    }
    return "";
  }

  draw() {
    if (!this.trace || this.trace.drawn_until <= 0) return;
    const rows = this.trace.rows.length, bottom = rows * this.rowHeight;
    const { context, width } = sharpContext(this.canvas, bottom + 28);
    this.left = roomForNames(context, width, this.trace.rows);
    drawTimeAxis(context, { left: this.left, width: this.width, top: 0, bottom }, this.view);
    context.save();
    context.beginPath();
    context.rect(this.left, 0, width - this.left, bottom);
    context.clip();
    this.drawSpans(context, width);
    context.restore();
    context.textAlign = "left";
    context.fillStyle = cssColour("--text");
    this.trace.rows.forEach((name, row) => context.fillText(name, 0, (row + 0.5) * this.rowHeight, this.left - 8));
  }

  drawSpans(context, width) {
    const spans = this.trace.spans, height = this.rowHeight;
    for (let i = 0; i < spans.row.length; ++i) {
      const from = Math.max(this.left, this.xAt(spans.start[i] / 1e9)), to = Math.min(width, this.xAt(spans.end[i] / 1e9));
      if (to <= this.left || from >= width) continue;
      const network = spans.stream[i] === 1, kind = this.kinds[spans.kind[i]];
      const top = spans.row[i] * height + (network ? height * 0.78 : 1);
      context.fillStyle = colours[kind];
      const gap = to - from > 3 ? 0.7 : 0;  // neighbours stay apart as long as there is room
      context.fillRect(from, top, Math.max(to - from - gap, 0.4), network ? height * 0.16 : height * 0.76 - 2);
      if (!network && spans.microbatch[i] >= 0 && height > 15 && to - from > 6 + 8 * String(spans.microbatch[i]).length) {
        context.fillStyle = kind === "forward" ? "#ffffff" : "#10202c";
        context.textAlign = "center";
        context.fillText(spans.microbatch[i], (from + to) / 2, top + height * 0.37);
      }
    }
  }
}
