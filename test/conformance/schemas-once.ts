import { prepareSchemas } from "./schemas.ts";

/** Generates the schemas before any test file needs them: each process would do so, where none has yet. */
export default prepareSchemas;
