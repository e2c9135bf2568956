import code from "./program.txt";

/**
 * The main module of a program's isolate. Its text is given to the Worker Loader (`runner.ts`); nothing imports it. A POST
 * with a `ProgramRun` runs the program, with a clock, timers and random numbers of its own, and is answered by a `ProgramStep`, or a 400
 * with the text of a syntax error.
 *
 * The program runs beside this code, and may change what it finds here. Then it gets wrong answers itself. It finds no
 * capability, because the isolate has none; whoever reads the answer checks it (`step.ts`).
 */

// Taken before the program begins, which may replace any global.
const { parse, stringify } = JSON;
const { apply, construct, ownKeys, getPrototypeOf, defineProperty } = Reflect;
const { imul } = Math;
const { freeze } = Object;
const { isView } = ArrayBuffer;
const AnyError = Error;
const Entries = Map;
const Members = Set;
const textOf = String;
const Answer = Response;
const nextTask = globalThis.setTimeout;
const realDate = Date;
const after = Promise.prototype.then;

/** `import(…)`, which would find modules of the runtime, with all that may stand between its tokens. */
const GAP = "(?:\\s|/\\*[\\s\\S]*?\\*/|//.*|<!--.*|-->.*)*";
const IMPORT = new RegExp(`(?<![\\w$#]|(?<!\\.\\.)\\.)import${GAP}(?:\\(|\\.${GAP}(?:source|defer)\\b)`);

// Code may be made from texts while an isolate starts, and not later.
let program;
let syntaxError;
try {
  const AsyncFunction = (async () => {}).constructor;
  program = new AsyncFunction(`"use strict"; ${code}\n//# sourceURL=program.js`);
} catch (error) {
  syntaxError = `${error.name}: ${error.message}`;
}

/** V8 writes this many lines before the first one of a function's text. */
const LINES_BEFORE = 2;

let bounds;
let now = 0;
let startedAt = 0;

/** The output of the program. */
let written = "";
let isCut = false;

/** Calls without a result, by sequence; the number and the length of all calls. */
const waiting = new Map();
let calls = 0;
let callLength = 0;

/** Timers, by number. */
const timers = new Map();
let timersMade = 0;

/** The end of the program. */
let settled;

export default {
  async fetch(request) {
    if (syntaxError) return new Answer(syntaxError, { status: 400 });
    const run = parse(await request.text());
    try {
      return new Answer(stringify(await step(run)));
    } catch (error) {
      // Such as a call's arguments that nest too deeply for the stack.
      return new Answer(stringify({ type: "ended", status: "failed", output: described(error) }));
    }
  },
};

async function step(run) {
  ({ bounds, startedAt } = run);
  now = startedAt;
  seed(run.seed);
  const { results } = run;
  if (IMPORT.test(code)) return ended("failed", "SyntaxError: A program has no import(…).");
  globalThis.tools = freeze(toolsOf(run.tools));
  apply(after, program(), [
    (value) => {
      settled = { status: "completed", value };
    },
    (error) => {
      settled = { status: "failed", error };
    },
  ]);
  for (let next = 0; ; ) {
    await untilStill();
    if (settled?.status === "failed") return failed(settled.error);
    if (waiting.size > 0) {
      if (next === results.length) return { type: "calls", calls: openCalls(), console: written };
      const fault = give(results[next]);
      if (fault) return ended("failed", fault);
      next += 1;
    } else if (settled) {
      if (next < results.length) return ended("failed", notDeterministic(results[next].sequence));
      return completed(settled.value);
    } else if (timers.size > 0) {
      fire();
    } else {
      return ended("failed", "The program waits for a promise that nothing settles.");
    }
  }
}

/** Resolves when no microtask is left: timers of the runtime come after all of them. */
function untilStill() {
  return new Promise((resolve) => nextTask(resolve, 0));
}

function completed(value) {
  return ended("completed", value === undefined ? "" : shown(value));
}

/** A program that throws ends at once: calls that it made since the last step are not begun. */
function failed(error) {
  const open = waiting.size > 0 ? `\n[Calls without a result: ${waiting.size}.]` : "";
  return ended("failed", `${described(error)}${open}`);
}

function ended(status, last) {
  if (isCut && status === "failed") written += `\n${last.slice(0, 1_000)}`;
  else if (last !== "") write(last);
  return { type: "ended", status, output: written };
}

function notDeterministic(sequence) {
  return `The program is not deterministic: its call ${sequence} is another one than before.`;
}

// Calls

function toolsOf(names) {
  const tools = { __proto__: null };
  for (const name of names) {
    defineProperty(tools, name, { enumerable: true, value: (input = {}) => call(name, input) });
  }
  return tools;
}

function call(name, input) {
  return new Promise((resolve, reject) => {
    const text = stringify(input);
    if (text === undefined) throw new TypeError(`The arguments of ${name} are no JSON value.`);
    if (calls >= bounds.calls) throw new RangeError(`A program makes at most ${bounds.calls} calls.`);
    if (callLength + text.length > bounds.callLength) {
      throw new RangeError(`The arguments of a program's calls have at most ${bounds.callLength} characters.`);
    }
    const sequence = calls;
    calls += 1;
    callLength += text.length;
    waiting.set(sequence, { name, text, resolve, reject });
  });
}

function openCalls() {
  const open = [];
  waiting.forEach(({ name, text }, sequence) => {
    defineProperty(open, open.length, {
      enumerable: true,
      value: { sequence, name, arguments: parse(text) },
    });
  });
  return open;
}

/** Gives the program a result. Answers what is wrong if the program has not made the call that it is the result of. */
function give({ sequence, call: recorded, output, error }) {
  const made = waiting.get(sequence);
  if (!made) return notDeterministic(sequence);
  if (recorded && (recorded.name !== made.name || stringify(recorded.arguments) !== stringify(parse(made.text)))) {
    return notDeterministic(sequence);
  }
  waiting.delete(sequence);
  if (error === undefined) made.resolve(output);
  else made.reject(new AnyError(error));
  return undefined;
}

// Output

function write(text) {
  if (isCut) return;
  const line = written === "" ? text : `\n${text}`;
  const left = bounds.outputLength - written.length;
  isCut = line.length > left;
  written += isCut
    ? `${line.slice(0, left)}\n[Cut: a program writes at most ${bounds.outputLength} characters.]`
    : line;
}

/** A value as text: a text as it is, others as JSON where that says anything. */
function shown(value) {
  if (typeof value === "string") return value;
  try {
    if (value instanceof AnyError) return described(value);
    return stringify(value, replaced) ?? textOf(value);
  } catch {
    return "[A value that has no text.]";
  }
}

function replaced(_key, value) {
  if (typeof value === "bigint") return textOf(value);
  if (value instanceof Entries || value instanceof Members) return [...value];
  return value instanceof AnyError ? described(value) : value;
}

/** An error, with the line of the program where it was thrown. */
function described(error) {
  try {
    if (!(error instanceof AnyError)) return `Uncaught ${shown(error)}`;
    const line = /program\.js:(\d+)/.exec(error.stack)?.[1];
    return `${error.name}: ${error.message}${line ? ` (line ${line - LINES_BEFORE})` : ""}`;
  } catch {
    return "[An error that has no text.]";
  }
}

function log(...values) {
  let line = "";
  for (let index = 0; index < values.length && line.length <= bounds.outputLength; index += 1) {
    line += `${index > 0 ? " " : ""}${shown(values[index])}`;
  }
  write(line);
}

// Time

function setTimer(callback, ms, values, isRepeated) {
  if (typeof callback !== "function") throw new TypeError("A timer's callback is no function.");
  if (timers.size >= bounds.timers) throw new RangeError(`A program has at most ${bounds.timers} timers.`);
  const delay = ms > 0 ? Math.min(ms, 2 ** 31 - 1) : 0;
  timersMade += 1;
  timers.set(timersMade, { at: now + delay, delay: isRepeated ? Math.max(delay, 1) : undefined, callback, values });
  return timersMade;
}

/** Moves the clock to the first timer, and calls it back. Those for the same time come in the order in which they were set. */
function fire() {
  let id;
  let first;
  timers.forEach((timer, number) => {
    if (!first || timer.at < first.at) {
      first = timer;
      id = number;
    }
  });
  now = first.at;
  if (first.delay === undefined) timers.delete(id);
  else timers.set(id, { ...first, at: now + first.delay });
  try {
    apply(first.callback, undefined, first.values);
  } catch (error) {
    write(`Uncaught ${described(error)}`);
  }
}

function VirtualDate(...values) {
  if (!new.target) return construct(realDate, [now]).toString();
  return construct(realDate, values.length === 0 ? [now] : values, new.target);
}

/** `Intl.DateTimeFormat` takes the present time where it gets none. */
function withVirtualNow(prototype) {
  const { get } = Object.getOwnPropertyDescriptor(prototype, "format");
  const { formatToParts } = prototype;
  defineProperty(prototype, "format", {
    configurable: true,
    get() {
      const format = apply(get, this, []);
      return (date = now) => format(date);
    },
  });
  prototype.formatToParts = function (date = now) {
    return apply(formatToParts, this, [date]);
  };
}

// Random numbers: sfc32, by Chris Doty-Humphrey, which is in the public domain.

const state = new Uint32Array(4);

function seed(text) {
  state.set([0x9e3779b9, 0x243f6a88, 0xb7e15162, 1]);
  for (let index = 0; index < text.length; index += 1) {
    const at = index % 3;
    state[at] = imul(state[at] ^ text.charCodeAt(index), 0x01000193);
  }
  for (let round = 0; round < 15; round += 1) random32();
}

function random32() {
  const sum = (state[0] + state[1] + state[3]) >>> 0;
  state[3] += 1;
  state[0] = state[1] ^ (state[1] >>> 9);
  state[1] = state[2] + (state[2] << 3);
  state[2] = ((state[2] << 21) | (state[2] >>> 11)) + sum;
  return sum;
}

/** As `crypto.getRandomValues`, of a generator that is no secret. */
function getRandomValues(array) {
  if (!isView(array) || array.byteLength > 65_536) throw new TypeError("This takes an array of at most 65,536 bytes.");
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  for (let index = 0; index < bytes.length; index += 1) bytes[index] = random32();
  return array;
}

function randomUUID() {
  const bytes = getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  return bytes.toHex().replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

// Globals

/** The globals of a program: the language without what tells of memory or other threads, and some of the web's functions. */
const KEPT = new Set(
  (
    "Object Function Array Number parseFloat parseInt Infinity NaN undefined Boolean String Symbol Promise RegExp Error " +
    "AggregateError EvalError RangeError ReferenceError SyntaxError TypeError URIError SuppressedError globalThis JSON " +
    "Math Intl ArrayBuffer Uint8Array Int8Array Uint16Array Int16Array Uint32Array Int32Array BigUint64Array " +
    "BigInt64Array Uint8ClampedArray Float32Array Float64Array Float16Array DataView Map BigInt Set Iterator WeakMap " +
    "WeakSet Proxy Reflect DisposableStack AsyncDisposableStack decodeURI decodeURIComponent encodeURI " +
    "encodeURIComponent escape unescape isFinite isNaN DOMException btoa atob structuredClone TextDecoder TextEncoder " +
    "URL URLSearchParams"
  ).split(" "),
);

addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  write(`Uncaught (in promise) ${described(event.reason)}`);
});

for (let holder = globalThis; holder !== Object.prototype; holder = getPrototypeOf(holder)) {
  for (const name of ownKeys(holder)) {
    if (typeof name === "string" && !KEPT.has(name)) delete holder[name];
  }
}

VirtualDate.prototype = realDate.prototype;
Object.defineProperties(VirtualDate, { name: { value: "Date" }, length: { value: 7 } });
Object.assign(VirtualDate, { now: () => now, parse: realDate.parse, UTC: realDate.UTC });
realDate.prototype.constructor = VirtualDate;
withVirtualNow(Intl.DateTimeFormat.prototype);
Math.random = () => random32() / 2 ** 32;

const clear = (number) => void timers.delete(number);
Object.assign(globalThis, {
  Date: VirtualDate,
  text: (value) => write(shown(value)),
  console: { log, info: log, debug: log, warn: log, error: log },
  performance: { now: () => now - startedAt },
  crypto: { getRandomValues, randomUUID },
  queueMicrotask: (callback) => void apply(after, Promise.resolve(), [() => callback()]),
  setTimeout: (callback, ms, ...values) => setTimer(callback, ms, values, false),
  setInterval: (callback, ms, ...values) => setTimer(callback, ms, values, true),
  clearTimeout: clear,
  clearInterval: clear,
});
