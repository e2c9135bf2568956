import { prepareSchemas } from "./schemas.ts";

/** Generates the schemas before any test file needs them. Otherwise each process would generate them. */
export default prepareSchemas;
