export * from "./allowance.ts";
export * from "./balance.ts";
export * from "./ledger.ts";
export * from "./limits.ts";
export * from "./nearly-used.ts";
export * from "./refusal.ts";
export * from "./reporter.ts";
export * from "./window.ts";
