import { describe, expect, it } from "vitest";
import { EnteredConversation, type Entry } from "../../src/store/home/entered-conversation.ts";
import { readHistory } from "../../src/store/home/history.ts";

/** A foreground turn's hold of its conversation, as its Worker has it, when the home's process ends. */

const HISTORY = { items: "[]", messages: "[]" };

/** An entry, with the home's end of its socket. */
function newEntry(history = HISTORY): { entry: Entry; home: WebSocket } {
  const { 0: socket, 1: home } = new WebSocketPair();
  socket.accept();
  home.accept();
  return { entry: { socket, history, values: () => readHistory(history) }, home };
}

/** A conversation that is entered again; `admit` ends that. */
async function enteredAgain() {
  const first = newEntry();
  const asked = Promise.withResolvers<void>();
  const { promise, resolve: admit } = Promise.withResolvers<Entry>();
  const entries = [Promise.resolve(first.entry), promise];
  const enter = () => {
    if (entries.length === 1) asked.resolve();
    return entries.shift() ?? promise;
  };
  const entered = await EnteredConversation.by(enter, true);
  first.home.close();
  await asked.promise;
  return { entered, admit };
}

const closed = (home: WebSocket) => new Promise((resolve) => home.addEventListener("close", resolve));

describe("a conversation that is entered again", () => {
  it("is entered before its turn is settled: a later entry would lock it for a turn that has ended", async () => {
    const { entered, admit } = await enteredAgain();
    const order: string[] = [];
    const settled = entered.settle(async () => {
      order.push("settled");
      return { ok: true, value: 3 };
    });
    await scheduler.wait(0);
    order.push("entered");
    admit(newEntry().entry);
    expect(await settled).toBe(3);
    expect(order).toEqual(["entered", "settled"]);
  });

  it("is not entered again once its turn is settled", async () => {
    const { entry, home } = newEntry();
    let entries = 0;
    const enter = async () => {
      entries += 1;
      return entry;
    };
    const entered = await EnteredConversation.by(enter, true);
    await entered.settle(async () => ({ ok: true, value: 1 }));
    const lost = closed(entry.socket);
    home.close();
    await lost;
    expect(entries).toBe(1);
  });

  it("is left at once if its turn has ended meanwhile", async () => {
    const { entered, admit } = await enteredAgain();
    entered.release();
    const { entry, home } = newEntry();
    admit(entry);
    await closed(home);
  });

  it("takes no turn that has not seen it as it is", async () => {
    const { entered, admit } = await enteredAgain();
    const { entry, home } = newEntry({ ...HISTORY, items: "[{}]" });
    admit(entry);
    const settled = entered.settle(() => Promise.reject(new Error("The home was asked.")));
    await expect(settled).rejects.toMatchObject({ status: 409, code: "conversation_locked" });
    await closed(home);
  });
});
