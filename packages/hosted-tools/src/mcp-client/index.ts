export * from "./answers.ts";
export * from "./connection.ts";
export * from "./tool-fault.ts";
