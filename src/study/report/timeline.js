// Timeline of a trace on a canvas. Times are in ns after the trace's first start. Names come from the trace, so they
// only ever become canvas text or textContent.
(() => {
  const source = document.getElementById("trace-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const byId = (id) => document.getElementById(id);
  const [lanes, axis, tip, detail] = ["lanes", "axis", "tip", "detail"].map(byId);
  const GUTTER = 150, AXIS = 40, NARROWEST = 50;
  const HEIGHT = { gpu: 24, host: 15 };

  for (const row of data.rows) {
    let at = 0, most = -Infinity;
    row.from = row.starts.map((difference) => (at += difference));
    row.to = row.from.map((from, index) => from + row.lengths[index]);
    // latest end so far: ascending even where events nest or overlap
    row.latest = row.to.map((to) => (most = Math.max(most, to)));
    row.height = row.host ? HEIGHT.host : HEIGHT.gpu;
    row.exposed = data.exposed[row.rank] ?? [];
    row.ends = row.exposed.map(([, to]) => to);
  }
  const view = { from: data.from, to: data.to };
  let rows = [], chosen = null, wanted = "", selection = null, queued = false;

  // -- times and events

  const time = (ns) => {
    const size = Math.abs(ns);
    const [unit, by] = size < 1e3 ? ["ns", 1] : size < 1e6 ? ["us", 1e3] : size < 1e9 ? ["ms", 1e6] : ["s", 1e9];
    return `${Number((ns / by).toPrecision(by === 1 ? 3 : 5))} ${unit}`;
  };
  const bytes = (count) => {
    const [unit, by] = count < 1e3 ? ["B", 1] : count < 1e6 ? ["kB", 1e3] : count < 1e9 ? ["MB", 1e6] : ["GB", 1e9];
    return `${Number((count / by).toPrecision(4))} ${unit}`;
  };
  // First index whose value is greater than `bound`; values ascend.
  const after = (values, bound) => {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > bound) high = middle; else low = middle + 1;
    }
    return low;
  };
  const operation = (row, index) => data.operations[row.operations[index]];
  const name = (row, index) => (row.host ? data.names[row.operations[index]] : operation(row, index).name);
  const label = (row, index) => (row.host ? name(row, index) : operation(row, index).short ?? name(row, index));
  const matches = (row, index) => !wanted || name(row, index).toLowerCase().includes(wanted);
  // Exposed intervals of the row's rank within from..to.
  const exposedIn = (row, from, to) => {
    const found = [];
    for (let at = after(row.ends, from); at < row.exposed.length && row.exposed[at][0] < to; at++) {
      found.push([Math.max(from, row.exposed[at][0]), Math.min(to, row.exposed[at][1])]);
    }
    return found;
  };
  const facts = ({ row, index }) => {
    const [from, to] = [row.from[index], row.to[index]];
    const lines = [`${time(to - from)}, from ${time(from)} to ${time(to)}`, `rank ${row.rank}, ${row.name}`];
    const step = data.steps.find((one) => one.from <= from && from < one.to);
    if (step) lines[1] += `, ${step.name}`;
    if (row.host) return lines;
    const of = operation(row, index);
    const facts = [of.kind];
    if (of.bytes) facts.push(bytes(of.bytes));
    if (of.group) facts.push(`group ${of.group}`);
    if (of.shape) facts.push(of.shape);
    lines.push(facts.join(", "));
    if (of.class === "comm") {
      const exposed = exposedIn(row, from, to).reduce((sum, [start, end]) => sum + end - start, 0);
      lines.push(exposed > 0 ? `exposed for ${time(exposed)} of it` : "hidden behind compute");
    }
    if (row.waited?.[index] > 0) lines.push(`waited ${time(row.waited[index])} for the last rank`);
    return lines;
  };

  // -- drawing

  const width = () => lanes.clientWidth - GUTTER;
  const x = (ns) => GUTTER + ((ns - view.from) / (view.to - view.from)) * width();
  const moment = (px) => view.from + ((px - GUTTER) / width()) * (view.to - view.from);
  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(`--${name}`).trim();
    return Object.fromEntries(
      ["ink", "soft", "paper", "line", "shade", "accent", "compute", "comm", "exposed", "memory", "other", "range", "on-block"]
        .map((key) => [key, of(key)]));
  };
  const prepare = (canvas, height) => {
    const scale = Math.min(window.devicePixelRatio || 1, 16000 / Math.max(height, 1));
    canvas.style.height = `${height}px`;
    const size = [Math.round(canvas.clientWidth * scale), Math.round(height * scale)];
    if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
    const ctx = canvas.getContext("2d");
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    ctx.clearRect(0, 0, canvas.clientWidth, height);
    ctx.textBaseline = "middle";
    ctx.font = "11px ui-monospace, monospace";
    return ctx;
  };
  const ticks = () => {
    const least = ((view.to - view.from) / Math.max(width(), 1)) * 90;
    const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
    const by = power * [1, 2, 5, 10].find((factor) => power * factor >= least);
    const found = [];
    for (let at = Math.ceil(view.from / by) * by; at <= view.to; at += by) found.push(at);
    return found;
  };

  const drawAxis = (colour) => {
    const ctx = prepare(axis, AXIS);
    ctx.fillStyle = colour.paper;
    ctx.fillRect(0, 0, axis.clientWidth, AXIS);
    ctx.save();
    ctx.beginPath();
    ctx.rect(GUTTER, 0, width(), AXIS);
    ctx.clip();
    ctx.fillStyle = colour.soft;
    ctx.strokeStyle = colour.line;
    for (const at of ticks()) {
      ctx.fillText(time(at), x(at) + 3, 10);
      ctx.strokeRect(Math.round(x(at)) + 0.5, 0, 0, AXIS);
    }
    for (const step of data.steps) {
      const [left, right] = [Math.max(x(step.from), GUTTER), Math.min(x(step.to), axis.clientWidth)];
      if (right - left < 2) continue;
      ctx.fillStyle = colour.shade;
      ctx.fillRect(left, 20, right - left - 1, 18);
      ctx.fillStyle = colour.ink;
      ctx.fillText(step.name.slice(0, Math.floor((right - left - 6) / 6.7)), left + 4, 30);
    }
    ctx.restore();
  };

  const drawRow = (ctx, row, top, colour) => {
    const bottom = row.height - 3;
    let drawn = -Infinity;
    for (let at = after(row.latest, view.from); at < row.from.length && row.from[at] < view.to; at++) {
      if (row.to[at] < view.from) continue;
      const found = matches(row, at);
      const kind = row.host ? "range" : operation(row, at).class;
      const left = Math.max(x(row.from[at]), GUTTER);
      const right = Math.max(Math.min(x(row.to[at]), lanes.clientWidth), left + 1);
      const keep = kind === "comm" || (wanted && found);
      if (right <= drawn + 0.3 && !keep) continue;
      const seam = right - left > 4 ? 1 : 0;
      ctx.globalAlpha = found ? 1 : 0.15;
      ctx.fillStyle = colour[kind];
      ctx.fillRect(left, top, right - left - seam, bottom);
      if (kind === "comm") {
        ctx.fillStyle = colour.exposed;
        for (const [from, to] of exposedIn(row, row.from[at], row.to[at])) {
          const start = Math.max(x(from), left);
          const end = Math.min(Math.max(x(to), start + 1), right - seam);
          if (end > start) ctx.fillRect(start, top, end - start, bottom);
        }
      }
      const room = Math.floor((right - left - 8) / 6.7);
      if (room > 2) {
        const text = label(row, at);
        ctx.fillStyle = colour["on-block"];
        ctx.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, left + 4, top + bottom / 2 + 0.5);
      }
      drawn = Math.max(drawn, right);
      if (chosen && chosen.row === row && chosen.index === at) {
        ctx.globalAlpha = 1;
        ctx.strokeStyle = colour.ink;
        ctx.lineWidth = 2;
        ctx.strokeRect(left, top - 1, right - left, bottom + 2);
        ctx.lineWidth = 1;
      }
    }
    ctx.globalAlpha = 1;
  };

  const draw = () => {
    queued = false;
    const colour = colours();
    drawAxis(colour);
    let top = 4;
    for (const row of rows) {
      row.top = top;
      top += row.height;
    }
    const ctx = prepare(lanes, top + 4);
    ctx.strokeStyle = colour.line;
    for (const at of ticks()) {
      if (x(at) >= GUTTER) ctx.strokeRect(Math.round(x(at)) + 0.5, 0, 0, top);
    }
    let last = null;
    for (const row of rows) {
      const first = row.rank !== last;
      last = row.rank;
      ctx.strokeStyle = colour.line;
      if (first && row.top > 4) ctx.strokeRect(0, Math.round(row.top) - 1.5, lanes.clientWidth, 0);
      ctx.fillStyle = first ? colour.ink : colour.soft;
      const text = first ? `r${row.rank} ${row.name}` : `   ${row.name}`;
      ctx.fillText(text.slice(0, 21), 2, row.top + (row.height - 3) / 2);
      drawRow(ctx, row, row.top, colour);
    }
    if (selection) {
      ctx.globalAlpha = 0.2;
      ctx.fillStyle = colour.accent;
      const [a, b] = [x(selection[0]), x(selection[1])];
      ctx.fillRect(Math.min(a, b), 0, Math.abs(b - a), top);
      ctx.globalAlpha = 1;
    }
    byId("window").textContent = `${time(view.to - view.from)} from ${time(view.from)}`;
  };
  const redraw = () => {
    if (!queued) requestAnimationFrame(draw);
    queued = true;
  };

  // -- moving

  const show = (from, to) => {
    const whole = data.to - data.from;
    const length = Math.min(Math.max(to - from, Math.min(NARROWEST, whole)), whole);
    view.from = Math.min(Math.max(from, data.from), data.to - length);
    view.to = view.from + length;
    redraw();
  };
  const zoom = (factor, at = (view.from + view.to) / 2) =>
    show(at - (at - view.from) * factor, at + (view.to - at) * factor);
  const pan = (share) => {
    const by = share * (view.to - view.from);
    show(view.from + by, view.to + by);
  };
  const whole = () => show(data.from, data.to);
  const reveal = (from, to) => {
    if (from >= view.from && to <= view.to) return;
    const half = (view.to - view.from) / 2;
    const middle = (from + to) / 2;
    show(middle - half, middle + half);
  };
  const choose = (found) => {
    chosen = found;
    detail.replaceChildren();
    if (found) {
      reveal(found.row.from[found.index], found.row.to[found.index]);
      const title = document.createElement("strong");
      title.textContent = name(found.row, found.index);
      detail.append(title, ` · ${facts(found).join(" · ")}`);
    } else {
      detail.textContent = "Select an event for its name and times.";
    }
    redraw();
  };
  const zoomTo = ({ row, index }) => {
    const length = Math.max(row.to[index] - row.from[index], NARROWEST);
    show(row.from[index] - length, row.to[index] + length);
  };
  // Shortest event under a point, so that a nested one can be reached.
  const eventAt = (px, py) => {
    const row = rows.find((one) => py >= one.top && py < one.top + one.height);
    if (!row || px < GUTTER) return null;
    const slack = ((view.to - view.from) / width()) * 2;
    const at = moment(px);
    let best = null;
    for (let index = after(row.latest, at - slack); index < row.from.length && row.from[index] <= at + slack; index++) {
      if (row.to[index] < at - slack) continue;
      const length = row.to[index] - row.from[index];
      if (!best || length < best.length) best = { row, index, length };
    }
    return best;
  };
  const nearest = (row, at) => ({ row, index: Math.min(Math.max(after(row.from, at) - 1, 0), row.from.length - 1) });
  const step = (by) => {
    if (!chosen) return rows.length && choose(nearest(rows[0], view.from));
    const index = chosen.index + by;
    if (index >= 0 && index < chosen.row.from.length) choose({ row: chosen.row, index });
  };
  const otherRow = (by) => {
    const at = rows.indexOf(chosen?.row) + by;
    if (rows[at]) choose(nearest(rows[at], chosen ? chosen.row.from[chosen.index] : (view.from + view.to) / 2));
  };
  const exposedNext = (by) => {
    const rank = chosen?.row.rank ?? rows[0]?.rank;
    const all = data.exposed[rank] ?? [];
    const now = chosen ? chosen.exposed ?? chosen.row.from[chosen.index] : view.from;
    const next = by > 0 ? all.find(([from]) => from > now) : all.findLast(([from]) => from < now);
    if (next) chooseComm(rank, next);
  };
  const chooseComm = (rank, [from, to]) => {
    for (const row of rows.filter((one) => one.rank === rank && !one.host)) {
      for (let index = after(row.latest, from); index < row.from.length && row.from[index] < to; index++) {
        if (operation(row, index).class === "comm" && row.to[index] > from) {
          // the interval may start within its collective
          choose({ row, index, exposed: from });
          return;
        }
      }
    }
  };
  const longest = () => {
    let best = null;
    for (const rank of new Set(rows.map((row) => row.rank))) {
      for (const [from, to] of data.exposed[rank] ?? []) {
        if (!best || to - from > best[1][1] - best[1][0]) best = [rank, [from, to]];
      }
    }
    if (!best) return;
    const [from, to] = best[1];
    show(from - 2 * (to - from), to + 2 * (to - from));
    chooseComm(...best);
  };
  const find = (by) => {
    if (!wanted) return;
    const start = chosen ? chosen.row.from[chosen.index] : view.from - 1;
    let best = null;
    for (const row of rows) {
      for (let index = 0; index < row.from.length; index++) {
        const distance = (row.from[index] - start) * by;
        if (distance > 0 && (!best || distance < best.distance) && matches(row, index)) best = { row, index, distance };
      }
    }
    if (best) choose(best);
  };
  const narrow = () => {
    wanted = byId("find").value.trim().toLowerCase();
    let count = 0;
    for (const row of rows) for (let index = 0; index < row.from.length; index++) count += matches(row, index);
    byId("found").textContent = wanted ? `${count} found` : "";
    redraw();
  };
  const filter = () => {
    const [rank, host] = [byId("rank").value, byId("host")?.checked];
    rows = data.rows.filter((row) => (rank === "" || String(row.rank) === rank) && (host || !row.host));
    if (chosen && !rows.includes(chosen.row)) choose(null);
    narrow();
  };

  // -- input

  const place = (event) => {
    const box = lanes.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const pointers = new Map();
  let moved = false, spread = 0;
  const gap = () => {
    const [a, b] = [...pointers.values()];
    return Math.abs(a[0] - b[0]) || 1;
  };
  lanes.addEventListener("pointerdown", (event) => {
    lanes.focus({ preventScroll: true });
    lanes.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    moved = false;
    if (pointers.size === 2) spread = gap();
    if (event.shiftKey) selection = [moment(place(event)[0]), moment(place(event)[0])];
  });
  lanes.addEventListener("pointermove", (event) => {
    const [px, py] = place(event);
    const before = pointers.get(event.pointerId);
    if (!before) return hover(event, px, py);
    tip.hidden = true;
    pointers.set(event.pointerId, [px, py]);
    if (Math.abs(px - before[0]) > 2) moved = true;
    if (selection) {
      selection[1] = moment(px);
      redraw();
    } else if (pointers.size === 2) {
      zoom(spread / gap(), moment(px));
      spread = gap();
    } else if (moved) {
      pan((before[0] - px) / width());
    } else {
      pointers.set(event.pointerId, before);
    }
  });
  const lift = (event) => {
    const at = place(event);
    if (!pointers.delete(event.pointerId)) return;
    if (selection) {
      const [from, to] = selection.sort((a, b) => a - b);
      selection = null;
      if (to > from) show(from, to);
      redraw();
    } else if (!moved && event.type === "pointerup") {
      choose(eventAt(...at));
    }
  };
  lanes.addEventListener("pointerup", lift);
  lanes.addEventListener("pointercancel", lift);
  lanes.addEventListener("pointerleave", () => (tip.hidden = true));
  lanes.addEventListener("dblclick", (event) => zoom(0.4, moment(place(event)[0])));
  lanes.addEventListener("wheel", (event) => {
    const zooms = event.ctrlKey || event.metaKey || document.activeElement === lanes;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      pan((event.deltaX || event.deltaY) / 800);
    } else if (zooms) {
      event.preventDefault();
      zoom(1.0015 ** event.deltaY, moment(place(event)[0]));
    }
  }, { passive: false });

  const hover = (event, px, py) => {
    const found = eventAt(px, py);
    tip.hidden = !found;
    if (!found) return;
    const lines = [name(found.row, found.index), ...facts(found)].map((text) => {
      const line = document.createElement("div");
      line.textContent = text;
      return line;
    });
    tip.replaceChildren(...lines);
    const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18;
    const fits = below + tip.offsetHeight < window.innerHeight;
    tip.style.left = `${Math.max(left, 4)}px`;
    tip.style.top = `${fits ? below : Math.max(event.clientY - tip.offsetHeight - 12, 4)}px`;
  };

  const KEYS = {
    ArrowLeft: () => pan(-0.2), a: () => pan(-0.2), ArrowRight: () => pan(0.2), d: () => pan(0.2),
    w: () => zoom(0.6), "+": () => zoom(0.6), "=": () => zoom(0.6), s: () => zoom(1.7), "-": () => zoom(1.7),
    ArrowUp: () => otherRow(-1), ArrowDown: () => otherRow(1), ",": () => step(-1), ".": () => step(1),
    e: () => exposedNext(1), E: () => exposedNext(-1), n: () => find(1), N: () => find(-1),
    l: longest, 0: whole, Home: whole, Enter: () => chosen && zoomTo(chosen),
    Escape: () => choose(null), "/": () => byId("find").focus(),
  };
  lanes.addEventListener("keydown", (event) => {
    const act = !event.ctrlKey && !event.metaKey && !event.altKey && KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  byId("find").addEventListener("input", narrow);
  byId("find").addEventListener("keydown", (event) => {
    if (event.key === "Enter") find(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") lanes.focus();
  });
  byId("rank").addEventListener("change", filter);
  byId("host")?.addEventListener("change", filter);
  const buttons = { "zoom-in": () => zoom(0.6), "zoom-out": () => zoom(1.7), left: () => pan(-0.5), right: () => pan(0.5), whole, longest };
  for (const [id, act] of Object.entries(buttons)) byId(id).addEventListener("click", act);
  window.addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  filter();
  choose(null);
})();
