export { boundaryOf, type FormPart, MalformedForm, type PartLimits, readParts } from "./multipart.ts";
