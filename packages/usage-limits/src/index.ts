export * from "./allowance.ts";
export * from "./end-users.ts";
export * from "./ledger.ts";
export * from "./limits.ts";
export * from "./together.ts";
export * from "./usage.ts";
export * from "./usage-reports.ts";
export * from "./window.ts";
