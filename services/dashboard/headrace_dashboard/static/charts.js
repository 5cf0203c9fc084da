"use strict";
// Charts over uPlot: a figure's `data-chart` says which lines it has; tables come thinned from the server.

const MAX_POINTS = 6000; // beyond this many, the thinned table is asked for again

function formatNumber(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value < 0) return "−" + formatNumber(-value);
  const size = value;
  if (value === 0) return "0";
  if (Number.isInteger(value) && size < 1e9) return value.toLocaleString("en-US");
  if (size < 1e-3 || size >= 1e9) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(4)));
}

function formatPercent(value) {
  if (value === null || value === undefined) return "–";
  const share = value * 100;
  return `${share >= 10 ? share.toFixed(0) : Number(share.toFixed(1))} %`;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function lineColour(tone) {
  return colour(/^\d$/.test(tone) ? (tone === "1" ? "--accent" : `--c${tone}`) : `--${tone}`);
}

function withAlpha(hex, alpha) {
  return hex + Math.round(alpha * 255).toString(16).padStart(2, "0");
}

class JobChart {
  constructor(figure, onZoom) {
    this.figure = figure;
    this.spec = JSON.parse(figure.dataset.chart);
    this.isPercent = this.spec.unit === "%";
    this.plot = figure.querySelector(".plot");
    this.keys = figure.querySelector(".keys");
    this.onZoom = onZoom;
    this.isZoomed = false;
    this.u = null;
    this.setLines(this.spec.lines);
  }

  setLines(lines) {
    this.lines = lines;
    this.isStack = lines.some((line) => line.role === "stack");
    this.table = [[], ...lines.map(() => [])];
    this.u?.destroy();
    this.u = null;
    this.makeKeys();
    this.onLines?.();
  }

  // Whether a metric belongs here whose name the job chose.
  takes(name) {
    const { prefix, suffix } = this.spec;
    return prefix !== "" && name.startsWith(prefix) && name.endsWith(suffix);
  }

  makeKeys() {
    this.keys.replaceChildren();
    this.values = this.lines.map((line) => {
      const key = document.createElement("span");
      key.className = "key";
      key.dataset.color = line.tone;
      key.dataset.role = line.role;
      const value = document.createElement("b");
      if (line.role !== "low" && line.role !== "high") key.append(document.createElement("i"));
      key.append(line.label, value);
      this.keys.append(key);
      return value;
    });
  }

  // The lines of a chart of open names come with each table, since the most frequent ones change.
  setTable({ lines, table }) {
    if (lines.map((line) => line.name).join() !== this.lines.map((line) => line.name).join()) this.setLines(lines);
    this.table = table;
    this.draw();
  }

  // Puts a point in its place; the table stays sorted by step.
  put(column, step, value) {
    const [steps] = this.table;
    let at = steps.length;
    while (at > 0 && steps[at - 1] >= step) at -= 1;
    if (steps[at] !== step) {
      steps.splice(at, 0, step);
      for (const values of this.table.slice(1)) values.splice(at, 0, null);
    }
    this.table[column + 1][at] = value;
  }

  get hasPoints() {
    return this.table[0].length >= this.spec.min_points && this.table.slice(1).some((column) => column.some((value) => value !== null));
  }

  // Stacked lines are drawn as running sums, the highest first, so that each hides what is below it.
  drawn() {
    const [steps, ...columns] = this.table;
    if (!this.isStack) return [steps, ...columns];
    const sums = [];
    columns.forEach((column, i) => {
      sums.push(column.map((value, at) => (value ?? 0) + (i ? sums[i - 1][at] : 0)));
    });
    return [steps, ...sums.reverse()];
  }

  draw() {
    if (!this.hasPoints) return;
    this.figure.hidden = false;
    this.figure.closest("section").hidden = false;
    if (this.u) this.u.setData(this.drawn(), !this.isZoomed);
    else this.build();
    this.showValues(null);
  }

  build() {
    const options = this.options();
    this.u = new uPlot(options, this.drawn(), this.plot);
    this.sizer ??= new ResizeObserver(() => {
      const width = this.plot.clientWidth;
      if (this.u && width && width !== this.u.width) this.u.setSize({ width, height: this.plot.clientHeight });
    });
    this.sizer.observe(this.plot);
  }

  rebuild() {
    if (!this.u) return;
    this.u.destroy();
    this.u = null;
    this.draw();
  }

  options() {
    const axis = { stroke: colour("--faint"), font: "11px " + colour("--sans"), ticks: { show: false } };
    const grid = { stroke: colour("--grid"), width: 1 };
    const show = this.isPercent ? (v) => `${Number((v * 100).toFixed(2))}` : formatNumber;
    return {
      width: this.plot.clientWidth || 320,
      height: this.plot.clientHeight || 178,
      padding: [8, 10, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        sync: { key: "job", setSeries: false },
        drag: { x: true, y: false, setScale: false },
        points: { size: 6 },
        bind: { dblclick: () => () => { this.unzoom(); return null; } },
      },
      scales: { x: { time: false, range: (u, low, high) => pad(low, high) }, y: { range: (u, low, high) => this.range(low, high) } },
      axes: [
        { ...axis, grid: { show: false }, size: 26, space: 60, values: (u, ticks) => ticks.map((t) => (Number.isInteger(t) ? formatNumber(t) : "")) },
        { ...axis, grid, size: 46, space: 34, values: (u, ticks) => ticks.map(show) },
      ],
      series: [{}, ...this.drawnSeries()],
      bands: this.band(),
      hooks: {
        setCursor: [(u) => this.showValues(u.cursor.idx)],
        setSelect: [(u) => this.zoom(u)],
      },
    };
  }

  drawnSeries() {
    const series = this.lines.map((line) => {
      const stroke = lineColour(line.tone);
      const isEdge = line.role === "low" || line.role === "high";
      return {
        label: line.label,
        stroke: isEdge ? withAlpha(stroke, 0.25) : stroke,
        width: this.isStack ? 0 : isEdge ? 1 : 1.75,
        fill: this.isStack ? mix(stroke, colour("--surface"), 0.72) : undefined,
        spanGaps: true,
        points: { show: () => !isEdge && !this.isStack && this.table[0].length < 12, size: 5, fill: stroke },
      };
    });
    return this.isStack ? series.reverse() : series;
  }

  band() {
    const low = this.lines.findIndex((line) => line.role === "low");
    const high = this.lines.findIndex((line) => line.role === "high");
    if (low < 0 || high < 0) return [];
    return [{ series: [high + 1, low + 1], fill: withAlpha(lineColour("1"), 0.12) }];
  }

  range(low, high) {
    if (low === null || high === null) return [0, 1];
    if (this.isPercent) return [0, high > 0.5 ? Math.max(1, high) : high * 1.15 || 0.01];
    if (this.isStack) return [0, high * 1.05 || 1];
    const room = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
    return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
  }

  showValues(at) {
    const columns = this.table.slice(1);
    columns.forEach((column, i) => {
      const value = at === null || at === undefined ? column.findLast((v) => v !== null) : column[at];
      this.values[i].textContent = this.isPercent ? formatPercent(value) : formatNumber(value);
    });
  }

  async zoom(u) {
    if (u.select.width < 8) return;
    const first = Math.floor(u.posToVal(u.select.left, "x"));
    const last = Math.ceil(u.posToVal(u.select.left + u.select.width, "x"));
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.isZoomed = true;
    this.setTable(await this.onZoom(this.spec.key, first, last));
    this.u.setData(this.drawn(), true);
  }

  async unzoom() {
    if (!this.isZoomed) return;
    this.isZoomed = false;
    this.setTable(await this.onZoom(this.spec.key, null, null));
  }
}

function pad(low, high) {
  return low === high ? [low - 1, high + 1] : [low, high];
}

function mix(a, b, share) {
  const parts = (hex) => [1, 3, 5].map((i) => parseInt((hex.length === 4 ? "#" + [...hex.slice(1)].map((c) => c + c).join("") : hex).slice(i, i + 2), 16));
  const [x, y] = [parts(a), parts(b)];
  return "#" + x.map((v, i) => Math.round(v * share + y[i] * (1 - share)).toString(16).padStart(2, "0")).join("");
}
