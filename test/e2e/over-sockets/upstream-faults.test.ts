import { again } from "./again.ts";

await again("upstream-faults");
