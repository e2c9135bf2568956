import type { OutputItem } from "@responses-edge/responses-api/items/registry";
import { addedItem, eventsWithin } from "./implied-events.ts";
import type { EventWriter } from "./output-events.ts";

/**
 * Adds an item that is complete, with the events that it would have had while it was written: readers that put items
 * together from deltas have its text, too. A text is one delta.
 */
export function addWhole(writer: EventWriter, item: OutputItem): void {
  const begun = addedItem(item) as unknown as OutputItem;
  const output_index = writer.addItem(begun);
  const whole = { ...item, ...("agent" in begun && { agent: begun.agent }) } as OutputItem;
  const { agent } = whole as { agent?: object };
  const place = { item_id: item.id, output_index, ...(agent && { agent }) };
  for (const [type, fields] of eventsWithin(item, place, wholeText)) writer.aside({ type, ...place, ...fields });
  writer.emit({ type: "response.output_item.done", output_index, item: whole });
}

function wholeText(text: string): string[] {
  return text === "" ? [] : [text];
}
