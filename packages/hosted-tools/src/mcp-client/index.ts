export * from "./answers.ts";
export * from "./connection.ts";
export * from "./operation.ts";
export * from "./tool-fault.ts";
