import { again } from "./again.ts";

await again("disconnect");
