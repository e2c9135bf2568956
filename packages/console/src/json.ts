/** Parsed JSON: the reader knows its fields. */
// biome-ignore lint/suspicious/noExplicitAny: as JSON.parse gives it.
export type Parsed = any;

/** An object of the API, such as an item or an event. Its type says which fields it has. */
export type ApiObject = Record<string, Parsed>;
