import { again } from "./again.ts";

await again("passthrough");
