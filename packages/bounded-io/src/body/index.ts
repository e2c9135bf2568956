export { concatBytes, type ReadBounds, ReadFault, readBounded, readBoundedText } from "./bounded-read.ts";
export { linesOf } from "./lines.ts";
