import { McpServer } from "@modelcontextprotocol/server";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";

/** An MCP server over standard input and output, with one tool. */

const server = new McpServer({ name: "notes", version: "1.0.0" });
server.registerTool(
  "take_note",
  { description: "Takes a note.", inputSchema: z.object({ text: z.string() }) },
  ({ text }) => ({ content: [{ type: "text", text: `noted: ${text}` }] }),
);
await server.connect(new StdioServerTransport());
