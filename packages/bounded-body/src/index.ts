export { concatBytes, type ReadBounds, ReadFault, readBounded, readBoundedText } from "./bounded-read.ts";
