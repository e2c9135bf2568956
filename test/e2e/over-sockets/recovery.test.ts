import { again } from "./again.ts";

await again("recovery");
