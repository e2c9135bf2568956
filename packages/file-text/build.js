/**
 * Writes `dist/cmaps.bin`, pdf.js' character maps in one file: the length of an index (32 bits, big endian), the index (JSON: the length of each map, by its
 * name), and the maps.
 *
 * Writes `dist/pdfjs.js`: unpdf's build of pdf.js as a function that makes a reader of its own for each file, with a budget in the places that a hostile file can make
 * run on. pdf.js has no bound of its own on what streams expand to or on how long it reads, and it gives way by the clock, which stands still in a Worker. Any Node
 * that wrangler runs on runs this.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";

/**
 * `budget` is what is left for the file that is read: `src/pdf.ts` sets it, and the numbers of images, of drawn lines and of faults that the reader finds and passes over. Once it has run out, the reader finds the end of the file wherever it reads on: it
 * passes over many errors and tries again.
 */
const BEGINNING = `import { Inflate } from "fflate";
export function newReader() {
const budget = { bytes: 0, tokens: 0, images: 0, faults: 0, strokes: 0, giveWay: () => undefined };
const $warned = (warning) => {
  if (/^(getTextContent|getContentStream|loadFont|ensureStateFont|readToUnicode)[ :]/.test(warning)) budget.faults += 1;
};
const $seen = (operator) => {
  // T.endInlineImage; T.lineTo to T.curveTo3, and T.shadingFill.
  if (operator === 65) budget.images += 1;
  else if ((operator >= 14 && operator <= 17) || operator === 62) budget.strokes += 1;
};
const $spend = (bytes, tokens) => {
  budget.bytes -= bytes;
  budget.tokens -= tokens;
  if (budget.bytes >= 0 && budget.tokens >= 0) return;
  throw new RangeError("The budget has run out.");
};
const $awaitedLater = (promise) => {
  promise.catch(() => undefined);
  return promise;
};
const $isSpent = () => --budget.tokens < 0 || budget.bytes < 0;
const $inflated = async function* (bytes) {
  let made = [];
  const inflate = new Inflate((piece) => made.push(piece));
  for (let at = 2; at < bytes.length; at += 4096) {
    inflate.push(bytes.subarray(at, at + 4096));
    for (const piece of made) {
      $spend(piece.byteLength, 0);
      yield piece;
    }
    made = [];
    const slice = budget.giveWay();
    if (slice) await slice;
  }
  try {
    inflate.push(new Uint8Array(0), true);
  } catch {
    // It is cut off: its beginning is read.
    budget.faults += 1;
  }
};
const $actualText = (properties, resources, items) => {
  const named = typeof properties?.name === "string" ? resources.get("Properties")?.get?.(properties.name) : properties;
  const text = named?.get?.("ActualText");
  if (typeof text !== "string") return false;
  items.push({ type: "actualText", text: stringToPDFString(text) });
  return true;
};
const $widthOf = ({ vertical, totalWidth, totalHeight, transform, prevTransform }) => {
  const width = Math.abs(totalWidth);
  if (vertical || !transform || !prevTransform) return width;
  const reach = Math.hypot(prevTransform[4] - transform[4], prevTransform[5] - transform[5]);
  return reach > width && reach < width + Math.abs(totalHeight) ? reach : width;
};
const $lengthOf = ({ bytes, end }, start, given) => {
  let length = 0;
  for (; start + length < end; length += 1) {
    if (bytes[start + length] === 101 && "ndobj".split("").every((sign, at) => bytes[start + length + 1 + at] === sign.charCodeAt(0))) break;
  }
  if (given > 0 && given <= length) return given;
  return start + length < end ? length : -1;
};
`;

/** What follows the code of pdf.js, in place of its exports. */
const END = `
return { budget, getDocument };
}
`;

/** The end of unpdf's module: all that it exports. */
const EXPORTS = /;export\{[^{}]*\};?\s*$/;

/** Places in unpdf 1.8.1, each of which is there once. */
const CHANGES = [
  // Decoded bytes of any filter, as they grow.
  [
    "for(;n<e;)n*=2;let r=new Uint8Array(n);return r.set(t),this.buffer=r}",
    "for(;n<e;)n*=2;$spend(n-t.byteLength,0);let r=new Uint8Array(n);return r.set(t),this.buffer=r}",
  ],
  // DEFLATE, in pieces: the platform's own stream expands all that it gets before anybody reads. The two bytes before it are zlib's header.
  [
    "let{readable:n,writable:r}=new DecompressionStream(e),i=r.getWriter();await i.ready,i.write(t).then(async()=>{await i.ready,await i.close()}).catch(()=>{});let a=[],o=0;for await(let e of n)a.push(e)",
    "if(e!==`deflate`)throw Error(e);let a=[],o=0;for await(let e of $inflated(t))a.push(e)",
  ],
  // The other half of pdf.js, which it looks for where the reader of another file has put its own.
  ["return globalThis.pdfjsWorker?.WorkerMessageHandler||null", "return WorkerMessageHandler"],
  // Every word of PDF syntax, also of content streams and character maps.
  [
    "getObj(){let e=!1,t=this.currentChar;for(;;){if(t<0)return te;",
    "getObj(){if($isSpent())return te;let e=!1,t=this.currentChar;for(;;){if(t<0)return te;",
  ],
  // The page dictionaries that are fetched ahead: where one of them is damaged, the others may never be awaited.
  ["!s.has(n)&&s.put(n,i.fetchAsync(n))", "!s.has(n)&&s.put(n,$awaitedLater(i.fetchAsync(n)))"],
  // Ranges of character maps, which may name millions of codes each.
  ["mapCidRange(e,t,n){if(", "mapCidRange(e,t,n){$spend(0,10*Math.max(0,t-e));if("],
  ["mapBfRange(e,t,n){if(", "mapBfRange(e,t,n){$spend(0,10*Math.max(0,t-e));if("],
  // Soft hyphens show which lines end in the middle of a word.
  ["if(c.isInvisibleFormatMark)continue;", "if(c.isInvisibleFormatMark&&s.unicode.charCodeAt(0)!==173)continue;"],
  // Streams without their last word end where the file says, or with their object.
  [
    "{if(a=this.#n(i),a<0)throw new FormatError$1(`Missing endstream command.`);",
    "{let $given=a;if(a=this.#n(i),a<0){if(a=$lengthOf(r,i,$given),a<0)throw new FormatError$1(`Missing endstream command.`);r.pos=i+a}",
  ],
  // Letters that are set apart are no words.
  [
    "v.trackingSpaceMin=a*.102,v.notASpace=a*.03,v.negativeSpaceMax=a*-.2,v.spaceInFlowMin=a*.102,v.spaceInFlowMax=a*.6",
    "v.trackingSpaceMin=a*.102+Math.max(0,j.charSpacing*j.textHScale),v.notASpace=a*.03,v.negativeSpaceMax=a*-.2,v.spaceInFlowMin=v.trackingSpaceMin,v.spaceInFlowMax=v.trackingSpaceMin+a*.498",
  ],
  // The text that a part of the page stands for, where its fonts do not say so.
  ["y=[` `,` `],b=0;function saveLastChar(e){", "y=[` `,` `],b=0,$marks=[];function saveLastChar(e){"],
  [
    "case T.beginMarkedContent:flushTextContentItem(),a&&(",
    "case T.beginMarkedContent:flushTextContentItem(),$marks.push(!1),a&&(",
  ],
  [
    "case T.beginMarkedContentProps:if(flushTextContentItem(),a){",
    "case T.beginMarkedContentProps:if(flushTextContentItem(),$marks.push($actualText(y[1],n,_.items)),a){",
  ],
  [
    "case T.endMarkedContent:if(flushTextContentItem(),a){",
    "case T.endMarkedContent:if(flushTextContentItem(),$marks.pop()&&_.items.push({type:`endActualText`}),a){",
  ],
  // Names of glyphs with a suffix, such as old style figures, and of ligatures (Adobe Glyph List specification, 2).
  [
    "let c=o[s];if(c!==void 0){n[a]=String.fromCharCode(c);continue}",
    "let c=o[s];if(c===void 0){let e=s.split(`.`)[0].split(`_`).map(e=>o[e]);if(e.every(e=>e!==void 0)){n[a]=String.fromCharCode(...e);continue}}if(c!==void 0){n[a]=String.fromCharCode(c);continue}",
  ],
  // Signs above and below letters may have a width.
  ["c.isZeroWidthDiacritic&&(p=0),", ""],
  // How far a text goes: signs above and below letters may be set back.
  ["width:Math.abs(e.totalWidth),height:", "width:$widthOf(e),height:"],
  // The words that a stamp is drawn with.
  [
    "get hasTextContent(){return!1}async extractTextContent",
    "get hasTextContent(){return this.data.annotationType===13}async extractTextContent",
  ],
  // Images and drawings on a page whose text is read, and parts of it that cannot be read. A line counts, a rectangle does not: rules of
  // tables are rectangles.
  [
    "k.read(p));){j=i.state,ee||=j.clone();let e=p.fn;switch(y=p.args,e|0){case T.setFont:",
    "k.read(p));){j=i.state,ee||=j.clone();let e=p.fn;$seen(e);switch(y=p.args,e|0){case T.setFont:",
  ],
  ["if(_.name!==`Form`){D.set(h,m.objId,!0)", "if(_.name!==`Form`){budget.images+=1,D.set(h,m.objId,!0)"],
  ["function warn$1(e){", "function warn$1(e){$warned(e);"],
  ["this.checked=0,this.endTime<=Date.now())", "this.checked=0,!0)"],
  ["enqueueChunk(!0),Promise.all([t,o.ready])", "enqueueChunk(!0),Promise.all([t,o.ready,budget.giveWay()])"],
];

/** Throws where a place is not there, or more than once: unpdf is another than it was. */
export function buildPdfReader() {
  const source = readFileSync(new URL(import.meta.resolve("unpdf/pdfjs")), "utf8");
  const changed = CHANGES.reduce((text, [from, to]) => {
    if (text.split(from).length !== 2) throw new Error(`unpdf has changed: ${from}`);
    return text.replace(from, () => to);
  }, source);
  if (!EXPORTS.test(changed)) throw new Error("unpdf has changed: its exports are not at its end.");
  write("pdfjs.js", Buffer.from(BEGINNING + changed.replace(EXPORTS, () => ";") + END));
  const maps = new URL("cmaps/", import.meta.resolve("pdfjs-dist/package.json"));
  const names = readdirSync(maps).filter((name) => name.endsWith(".bcmap"));
  const bytes = names.map((name) => readFileSync(new URL(name, maps)));
  const index = Buffer.from(JSON.stringify(Object.fromEntries(names.map((name, at) => [name, bytes[at].length]))));
  const length = Buffer.alloc(4);
  length.writeUInt32BE(index.length);
  write("cmaps.bin", Buffer.concat([length, index, ...bytes]));
}

/** Writes a file, unless it is there. Another process may read it meanwhile. */
function write(name, bytes) {
  const target = fileURLToPath(new URL(`dist/${name}`, import.meta.url));
  if (existsSync(target) && readFileSync(target).equals(bytes)) return;
  mkdirSync(fileURLToPath(new URL("dist", import.meta.url)), { recursive: true });
  writeFileSync(`${target}.${process.pid}`, bytes);
  renameSync(`${target}.${process.pid}`, target);
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) buildPdfReader();
