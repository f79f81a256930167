"use strict";
// The page of a comparison: distributions and DAGs by Plotly; schedules on canvases below the axes that Plotly draws.
(async () => {
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
// Named one by one: Plotly has a button that would send a chart to its makers.
const BUTTONS = ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"];
const LOOK = {responsive: true, displaylogo: false, plotlyServerURL: "", modeBarButtons: [["toImage", ...BUTTONS]]};
const MARGIN = {l: 60, r: 15, t: 30, b: 45};
const MOVE = 0xffd9d9d9, WHITE = 0xffffffff, FADED = 0xffebebeb;
const WAVES = ["fresh executor", "first task of the stage there", "further task"];
const PLACES = ["above", "below"];

// ---- data ------------------------------------------------------------------------------------------------

/** What executors did: columns of whole numbers, as packed.py describes them. Unpacked when it is first shown. */
const unpacked = new Map();
function schedule(number) {
  if (!unpacked.has(number)) unpacked.set(number, unpack(number));
  return unpacked.get(number);
}

async function unpack(number) {
  const text = atob($("record-" + number).textContent), bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const all = new Uint32Array(await new Response(stream).arrayBuffer());
  const counts = all.subarray(0, data.executors), size = (all.length - data.executors) / 6;
  const column = place => all.subarray(data.executors + place * size, data.executors + (place + 1) * size);
  const [start, finish] = [column(0), column(1)], first = new Uint32Array(data.executors + 1);
  let span = 0;
  for (let executor = 0; executor < data.executors; executor++) {
    let clock = 0;
    for (const end = span + counts[executor]; span < end; span++) {
      start[span] += clock;
      clock = finish[span] += start[span];
    }
    first[executor + 1] = span;
  }
  return {first, start, finish, stage: column(2), job: column(3), parallelism: column(4), wave: column(5),
          second: data.records[number].end_s / data.ticks};
}

/** The first span from a on, before b, that ends after a time (in ticks). */
function search(shown, a, b, time) {
  while (a < b) {
    const middle = (a + b) >> 1;
    if (shown.finish[middle] > time) b = middle; else a = middle + 1;
  }
  return a;
}

const firstStage = [0];
for (const job of data.jobs) firstStage.push(firstStage.at(-1) + data.profiles[job.profile].stages.length);
const jobName = job => `${job}: ${data.profiles[data.jobs[job].profile].name}`;
/** Plotly takes some tags for its own; a name is text. */
const plain = text => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// ---- what is chosen -----------------------------------------------------------------------------------------

/** The end of what is shown. */
const end = () => Math.max(...PLACES.map(place => data.records[chosen[place]].end_s)) || 1;
const chosen = {above: data.first[0], below: data.first[1], job: null, moment: 0};
let whole = [0, 1];
for (const place of PLACES) {
  data.schedulers.forEach((name, number) => $(place).add(new Option(name, number)));
  $(place).value = chosen[place];
  $(place).onchange = () => { chosen[place] = +$(place).value; show(); };
}
data.jobs.forEach((_, job) => $("job").add(new Option(jobName(job), job)));
$("job").onchange = () => choose(+$("job").value, middle(+$("job").value));
$("moment").oninput = () => choose(chosen.job, +$("moment").value);
$("colouring").onchange = () => { paint(); drawDags(); };

/** When half of a job's tasks are done in the upper schedule; its arrival if none runs. */
function middle(job) {
  const {finish, second, job: jobs, stage} = shown.above, times = [];
  for (let span = 0; span < jobs.length; span++) if (jobs[span] === job && stage[span]) times.push(finish[span]);
  return times.length ? times.sort((a, b) => a - b)[Math.floor((times.length - 1) / 2)] * second : data.jobs[job].arrival_s;
}

/** The job that both schedules run together for the longest time, and the middle of that. */
function together() {
  const from = data.jobs.map(() => 0), to = data.jobs.map(() => Infinity);
  for (const {start, finish, job, stage, second} of Object.values(shown)) {
    const first = data.jobs.map(() => Infinity), final = data.jobs.map(() => 0);
    for (let span = 0; span < job.length; span++) if (stage[span]) {
      first[job[span]] = Math.min(first[job[span]], start[span] * second);
      final[job[span]] = Math.max(final[job[span]], finish[span] * second);
    }
    data.jobs.forEach((_, each) => { from[each] = Math.max(from[each], first[each]); to[each] = Math.min(to[each], final[each]); });
  }
  let best = 0;
  data.jobs.forEach((_, job) => { if (to[job] - from[job] > to[best] - from[best]) best = job; });
  return to[best] > from[best] ? [best, (from[best] + to[best]) / 2] : [best, middle(best)];
}

function choose(job, moment) {
  Object.assign(chosen, {job, moment});
  $("job").value = job;
  $("moment").value = moment;
  paint();
  drawDags();
  tabulate();
}

// ---- schedules ----------------------------------------------------------------------------------------------

const graph = $("schedules"), shown = {};
const axes = place => {
  const {_fullLayout: layout} = graph, below = place === "below";
  return {x: layout.xaxis, y: below ? layout.yaxis2 : layout.yaxis};
};

function marks(place) {
  const record = data.records[chosen[place]], below = place === "below";
  const each = {mode: "markers", type: "scatter", yaxis: below ? "y2" : "y", xaxis: "x", cliponaxis: false,
                showlegend: !below, hovertemplate: "%{text}<extra></extra>"};
  const moments = (times, word) => times.map((time, job) =>
    `job ${plain(jobName(job))}<br>${word} at ${time === null ? "-" : time.toFixed(1)} s`);
  const arrivals = data.jobs.map(job => job.arrival_s), size = arrivals.length > 60 ? 5 : 8;
  return [
    {...each, name: "job arrives", x: arrivals, y: arrivals.map(() => 0), text: moments(arrivals, "arrives"),
     marker: {symbol: "triangle-up", color: "#0072B2", size}},
    {...each, name: "job completes", x: record.completion_s, y: record.completion_s.map(() => data.executors),
     text: moments(record.completion_s, "completes"), marker: {symbol: "triangle-down", color: "#D55E00", size}},
  ];
}

function title(place) {
  const number = chosen[place];
  return {text: `${plain(data.schedulers[number])}: mean JCT ${data.records[number].mean_jct_s.toFixed(1)} s`,
          showarrow: false, x: 0, xref: "paper", xanchor: "left", y: place === "above" ? 1.03 : 0.47, yref: "paper",
          yanchor: "bottom"};
}

async function show() {
  for (const place of PLACES) shown[place] = await schedule(chosen[place]);
  const executors = {title: {text: "Executor"}, range: [0, data.executors], tickformat: "d", dtick: data.executors < 6 ? 1 : undefined, showgrid: false, zeroline: false};
  // What is zoomed into stays; all of what is shown stays all.
  const isZoomed = graph._fullLayout && graph._fullLayout.xaxis.range.some((edge, place) => edge !== whole[place]);
  const range = isZoomed ? [...graph._fullLayout.xaxis.range] : [0, end()];
  whole = [0, end()];
  $("moment").max = end();
  PLACES.forEach((place, number) => { $("of").options[number].text = data.schedulers[chosen[place]]; });
  if (chosen.job === null) [chosen.job, chosen.moment] = together();
  await Plotly.react(graph, PLACES.flatMap(marks), {
    margin: {...MARGIN, t: 45, b: 85}, dragmode: "zoom", hovermode: "closest",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    xaxis: {title: {text: "Time (s)"}, range, anchor: "y2", showgrid: false, zeroline: false},
    yaxis: {...executors, domain: [0.55, 1]}, yaxis2: {...executors, domain: [0, 0.45]},
    legend: {orientation: "h", x: 1, xanchor: "right", y: -0.11, yanchor: "top"}, modebar: {bgcolor: "rgba(0,0,0,0)", color: "#999", activecolor: "#333"}, annotations: PLACES.map(title),
  }, {...LOOK, scrollZoom: true, modeBarButtons: [BUTTONS]});
  choose(chosen.job, chosen.moment);
}

const COLOUR = text => 0xff000000 | parseInt(text.slice(5, 7) + text.slice(3, 5) + text.slice(1, 3), 16);
const colours = Uint32Array.from(data.colours, text => COLOUR(text));
const canvases = Object.fromEntries(PLACES.map(place => [place, document.createElement("canvas")]));
const stageColour = stage => data.palette[stage % data.palette.length], stageColours = data.palette.map(COLOUR);
let waiting = false;
function paint() {
  if (waiting || !graph._fullLayout) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; PLACES.forEach(paintOne); });
}

/** A row of pixels for each executor in sight, span by span; so the cost is that of the pixels, not of the tasks. */
function paintOne(place) {
  const canvas = canvases[place], {x, y} = axes(place), dots = window.devicePixelRatio || 1, all = shown[place];
  const width = Math.round(x._length * dots), height = Math.round(y._length * dots);
  Object.assign(canvas.style, {left: x._offset + "px", top: y._offset + "px", width: x._length + "px", height: y._length + "px"});
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, {width, height});
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer).fill(WHITE), row = new Uint32Array(width);
  const [left, right] = x.range, [low, high] = y.range;
  const scale = width * all.second / (right - left), origin = left * width / (right - left);
  const lane = height / (high - low), gap = lane >= 6 ? 1 : 0, mode = $("colouring").value, labels = [];
  const colour = (job, stage) => mode !== "jobs" && job !== chosen.job ? FADED
    : mode === "stages" ? stageColours[(stage - firstStage[job]) % stageColours.length] : colours[job];
  let before = -1;
  for (let top = 0; top < height;) {
    const executor = Math.floor(high - (top + 0.5) / lane);
    const bottom = Math.max(top + 1, Math.min(height, Math.round((high - executor) * lane)));
    if (executor >= 0 && executor < data.executors && executor !== before) {
      row.fill(WHITE);
      for (let span = search(all, all.first[executor], all.first[executor + 1], left / all.second), edge = 0;
           span < all.first[executor + 1]; span++) {
        const from = all.start[span] * scale - origin, to = all.finish[span] * scale - origin;
        if (from >= width) break;
        if (to < edge) continue;  // it ends in a pixel that is drawn
        const begin = Math.max(0, Math.floor(from)), stop = Math.min(width, Math.max(begin + 1, Math.floor(to)));
        const job = all.job[span];
        row.fill(all.stage[span] ? colour(job, all.stage[span] - 2) : MOVE, begin, stop);
        if (to - from >= 6 && stop < width) row[stop - 1] = WHITE;
        edge = stop;
        if (lane >= 13 * dots && stop - begin > 60 * dots && all.stage[span]) labels.push([span, begin, stop, (top + bottom) / 2]);
      }
      for (let line = top; line < bottom - (bottom - top > gap ? gap : 0); line++) pixels.set(row, line * width);
      before = executor;
    }
    top = bottom;
  }
  context.putImageData(image, 0, 0);
  drawLabels(context, all, labels, dots, colour);
  const at = chosen.moment / all.second * scale - origin;
  context.fillStyle = "#000";
  context.fillRect(Math.round(at), 0, dots, height);
}

function drawLabels(context, all, labels, dots, colour) {
  context.font = `${11 * dots}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  for (const [span, begin, stop, middle] of labels.slice(0, 400)) {
    const job = all.job[span], text = `${jobName(job)} / ${stageName(job, all.stage[span] - 2 - firstStage[job])}`;
    const fits = Math.floor((stop - begin) / (6.5 * dots));
    const [red, green, blue] = [0, 8, 16].map(shift => colour(job, all.stage[span] - 2) >> shift & 255);
    context.fillStyle = 0.3 * red + 0.6 * green + 0.1 * blue > 120 ? "#000" : "#fff";
    context.fillText(text.length > fits ? text.slice(0, fits - 1) + "…" : text, begin + 4 * dots, middle);
  }
}

const stageName = (job, stage) => data.profiles[data.jobs[job].profile].stages[stage].name || `stage ${stage}`;

/** Where in a schedule the pointer is: the time, and the span there, if any. */
function under(event) {
  const box = graph.getBoundingClientRect();
  for (const place of PLACES) {
    const {x, y} = axes(place), across = event.clientX - box.left - x._offset, down = event.clientY - box.top - y._offset;
    if (across < 0 || across > x._length || down < 0 || down > y._length) continue;
    const time = x.range[0] + across / x._length * (x.range[1] - x.range[0]), all = shown[place];
    const executor = Math.floor(y.range[1] - down / y._length * (y.range[1] - y.range[0]));
    if (executor < 0 || executor >= data.executors) return {time, span: -1};
    const end = all.first[executor + 1], span = search(all, all.first[executor], end, time / all.second);
    return {time, all, executor, span: span < end && all.start[span] * all.second <= time ? span : -1};
  }
  return null;
}

function describe({all, executor, span}) {
  const start = all.start[span] * all.second, finish = all.finish[span] * all.second, job = all.job[span];
  const when = `${start.toFixed(2)} to ${finish.toFixed(2)} s, ${(finish - start).toPrecision(4)} s`;
  if (!all.stage[span]) return `executor ${executor} moves to job ${jobName(job)}\n${when}`;
  const stage = all.stage[span] - 2 - firstStage[job], name = stageName(job, stage);
  return `job ${jobName(job)}\nstage ${stage}${name === `stage ${stage}` ? "" : ": " + name}\n` +
    `${WAVES[all.wave[span]]}, parallelism ${all.parallelism[span]}\n${when}\nexecutor ${executor}`;
}

let pressed = null;
graph.addEventListener("mousemove", event => {
  const found = under(event), hint = $("hint");
  hint.hidden = !found || found.span < 0;
  if (hint.hidden) return;
  hint.textContent = describe(found);
  hint.style.left = Math.min(event.clientX + 14, window.innerWidth - hint.offsetWidth - 8) + "px";
  hint.style.top = Math.min(event.clientY + 14, window.innerHeight - hint.offsetHeight - 8) + "px";
});
graph.addEventListener("mouseleave", () => { $("hint").hidden = true; });
graph.addEventListener("pointerdown", event => { pressed = event; }, true);
window.addEventListener("pointerup", event => {
  const near = pressed && Math.hypot(event.clientX - pressed.clientX, event.clientY - pressed.clientY) < 4;
  const found = near ? under(event) : null;
  pressed = null;
  if (!found) return;
  choose(found.span >= 0 ? found.all.job[found.span] : chosen.job, found.time);
}, true);

// ---- a job at a moment ----------------------------------------------------------------------------------------

/** Of each stage of the chosen job: tasks that are done, and that run, at the moment. */
function counts(all) {
  const first = 2 + firstStage[chosen.job], number = data.profiles[data.jobs[chosen.job].profile].stages.length;
  const done = new Array(number).fill(0), running = new Array(number).fill(0), moment = chosen.moment / all.second;
  for (let span = 0; span < all.stage.length; span++) {
    if (all.job[span] !== chosen.job || !all.stage[span] || all.start[span] > moment) continue;
    (all.finish[span] <= moment ? done : running)[all.stage[span] - first]++;
  }
  return {done, running};
}

function drawDags() {
  const {stages, edges} = data.profiles[data.jobs[chosen.job].profile], crowded = stages.length > 30;
  const stacked = window.innerWidth < 800;  // one below the other on a narrow page
  const traces = [], annotations = [], layout = {margin: {...MARGIN, t: 45}, showlegend: false, hovermode: "closest", annotations};
  $("clock").textContent = chosen.moment.toFixed(1) + " s";
  PLACES.forEach((place, column) => {
    const {done, running} = counts(shown[place]), suffix = column ? "2" : "", record = data.records[chosen[place]];
    const at = {xaxis: "x" + suffix, yaxis: "y" + suffix, type: "scatter", x: stages.map(stage => stage.x), y: stages.map(stage => stage.y)};
    for (const [parent, child] of edges) annotations.push({
      x: at.x[child], y: at.y[child], ax: at.x[parent], ay: at.y[parent], xref: at.xaxis, yref: at.yaxis, axref: at.xaxis,
      ayref: at.yaxis, text: "", showarrow: true, arrowhead: 2, arrowsize: 1, arrowwidth: 1, arrowcolor: "#999",
      standoff: crowded ? 6 : 17, startstandoff: crowded ? 6 : 17});
    traces.push({...at, mode: crowded ? "markers" : "markers+text", textfont: {size: 9},
      text: stages.map((stage, number) => `${done[number]}/${stage.tasks}`),
      customdata: stages.map((stage, number) => `${stage.name ? plain(stage.name) : "stage " + number}<br>${stage.tasks} tasks: ` +
        `${done[number]} done, ${running[number]} running`), hovertemplate: "%{customdata}<extra></extra>",
      marker: {size: crowded ? 11 : 34, color: stages.map((stage, number) => done[number] / stage.tasks), cmin: 0, cmax: 1,
               colorscale: [[0, "#ffffff"], [1, "#7fb8de"]],
               line: $("colouring").value === "stages" ? {width: running.map(number => number ? 6 : 3), color: stages.map((_, stage) => stageColour(stage))}
                 : {width: 2, color: running.map(number => number ? "#E69F00" : "#777")}}});
    const bare = {visible: false, fixedrange: true};
    layout["xaxis" + suffix] = {...bare, domain: stacked ? [0, 1] : column ? [0.52, 1] : [0, 0.48], range: data.frame, anchor: at.yaxis};
    layout["yaxis" + suffix] = {...bare, domain: !stacked ? [0, 1] : column ? [0, 0.44] : [0.56, 1], range: data.frame, anchor: at.xaxis};
    const {arrival_s} = data.jobs[chosen.job], end = record.completion_s[chosen.job];
    const state = chosen.moment < arrival_s ? "has not arrived" : end !== null && end <= chosen.moment ? `completed at ${end.toFixed(1)} s`
      : `${(chosen.moment - arrival_s).toFixed(1)} s after its arrival`;
    annotations.push({text: `${plain(data.schedulers[chosen[place]])}: job ${chosen.job} ${state}`, showarrow: false, align: "left",
                      x: column && !stacked ? 0.52 : 0, y: column && stacked ? 0.45 : 1.01, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom"});
  });
  Plotly.react("dags", traces, layout, {...LOOK, displayModeBar: false});
}

// ---- stages -----------------------------------------------------------------------------------------------------

const MOST_ROWS = 300, COLUMNS = ["Stage", "Tasks", "Waited (s)", "Started (s)", "Ended (s)", "Task: least (s)", "25 %", "Median", "75 %", "Most (s)", "Skew"];
const sorting = {column: 3, sign: 1};
$("of").onchange = $("every").onchange = tabulate;
$("stages-note").textContent = "Waited: from the end of the last parent, or the job's arrival, to the first task. Skew: the longest task over the " +
  "median one. A column's name sorts by it.";

/** A row of numbers for each stage that ran, in the order of COLUMNS. */
function stageRows(all, job) {
  const durations = new Map(), ends = new Map(), starts = new Map();
  for (let span = 0; span < all.stage.length; span++) {
    if (!all.stage[span] || job !== null && all.job[span] !== job) continue;
    const stage = all.stage[span] - 2, start = all.start[span] * all.second, finish = all.finish[span] * all.second;
    if (!durations.has(stage)) durations.set(stage, []);
    durations.get(stage).push(finish - start);
    starts.set(stage, Math.min(starts.get(stage) ?? Infinity, start));
    ends.set(stage, Math.max(ends.get(stage) ?? 0, finish));
  }
  return [...durations].map(([number, times]) => {
    let job = 0;
    while (firstStage[job + 1] <= number) job++;
    const stage = number - firstStage[job], {arrival_s, profile} = data.jobs[job];
    const parents = data.profiles[profile].edges.filter(edge => edge[1] === stage).map(edge => ends.get(firstStage[job] + edge[0]) ?? 0);
    times.sort((a, b) => a - b);
    const quantile = part => {
      const place = part * (times.length - 1), low = Math.floor(place);
      return times[low] + (place - low) * ((times[low + 1] ?? times[low]) - times[low]);
    };
    const [least, low, median, high, most] = [0, 0.25, 0.5, 0.75, 1].map(quantile), start = starts.get(number);
    return {job, stage, cells: [number, times.length, Math.max(0, start - Math.max(arrival_s, ...parents)), start, ends.get(number),
                                least, low, median, high, most, median > 0 ? most / median : 1]};
  });
}

function tabulate() {
  const every = $("every").checked, rows = stageRows(shown[$("of").value], every ? null : chosen.job);
  rows.sort((one, other) => sorting.sign * (one.cells[sorting.column] - other.cells[sorting.column]));
  const caption = document.createElement("caption"), head = document.createElement("tr");
  caption.textContent = `${data.schedulers[chosen[$("of").value]]}: ${every ? "all jobs" : "job " + jobName(chosen.job)}` +
    (rows.length > MOST_ROWS ? `; the first ${MOST_ROWS} of ${rows.length} stages` : "");
  COLUMNS.forEach((name, column) => {
    const cell = document.createElement("th"), button = document.createElement("button");
    const up = sorting.column === column;
    button.textContent = name + (up ? sorting.sign > 0 ? " ▲" : " ▼" : "");
    button.onclick = () => { Object.assign(sorting, {column, sign: up ? -sorting.sign : column ? -1 : 1}); tabulate(); };
    cell.ariaSort = up ? sorting.sign > 0 ? "ascending" : "descending" : "none";
    cell.append(button);
    head.append(cell);
  });
  $("stages").replaceChildren(caption, head, ...rows.slice(0, MOST_ROWS).map(({job, stage, cells}) => {
    const row = document.createElement("tr"), name = stageName(job, stage);
    const texts = [`${every ? jobName(job) + " / " : ""}${stage}${name === `stage ${stage}` ? "" : ": " + name}`, cells[1],
                   ...cells.slice(2).map((value, place) => value.toFixed(place > 2 && place < 8 ? 2 : 1))];
    row.append(...texts.map(text => Object.assign(document.createElement("td"), {textContent: text})));
    const swatch = Object.assign(document.createElement("span"), {className: "swatch"});
    swatch.style.background = every ? data.colours[job] : stageColour(stage);
    row.firstChild.prepend(swatch);
    return row;
  }));
}

// ---- who gains, who loses -----------------------------------------------------------------------------------------

/** Makes the heads of a table into buttons that sort its rows, in the order of the last column so far. Without this script it is a plain table. */
function makeSortable(table) {
  const [{cells: heads}, ...rows] = table.rows, last = heads.length - 1;
  const number = (row, column) => parseFloat(row.cells[column].dataset.value);
  const compare = (one, other, column) => column ? number(one, column) - number(other, column)
    : one.cells[0].textContent.localeCompare(other.cells[0].textContent, "en", {numeric: true});
  [...heads].forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    button.onclick = () => {
      const sign = head.ariaSort === "none" ? column ? -1 : 1 : head.ariaSort === "ascending" ? -1 : 1;
      for (const other of heads) other.ariaSort = "none";
      head.ariaSort = sign > 0 ? "ascending" : "descending";
      const isUnknown = row => column > 0 && isNaN(number(row, column));
      rows.sort((one, other) => isUnknown(one) - isUnknown(other) || sign * compare(one, other, column));
      heads[0].parentNode.after(...rows);
    };
    head.replaceChildren(button);
    head.ariaSort = column === last ? "ascending" : "none";
  });
}

if ($("gains")) {
  makeSortable($("gains").querySelector("table"));
  $("gains-notes").append(Object.assign(document.createElement("li"), {textContent: "A column's name sorts by it."}));
}

// ---- go -------------------------------------------------------------------------------------------------------

for (const place of PLACES) graph.append(canvases[place]);
await show();
for (const event of ["plotly_relayout", "plotly_relayouting", "plotly_afterplot"]) graph.on(event, paint);
for (const [id, figure] of Object.entries(data.figures)) {
  Plotly.newPlot(id, figure.data, {margin: MARGIN, height: 340, hovermode: "closest", ...figure.layout}, LOOK);
}
// Long tables scroll, and on a narrow page tables scroll sideways: by keyboard, too.
const scrolling = () => {
  for (const table of document.querySelectorAll("table, .wide")) {
    table.tabIndex = table.scrollWidth > table.clientWidth || table.scrollHeight > table.clientHeight ? 0 : -1;
  }
};
window.addEventListener("resize", scrolling);
scrolling();
requestAnimationFrame(() => setTimeout(() => { document.body.dataset.drawn = Math.round(performance.now()); }));
})();
