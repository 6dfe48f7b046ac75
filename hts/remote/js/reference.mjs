// Any number of seats on one connection, each of any number of replicas that step together:
//
//     reference ADDRESS [--seats N] [--rows N] [--agents N] [--not-replayable] [--keys FOLDER]
//
// Exit code 0 when the run is over, 3 (and the sentence) where it refuses this simulator.

import { parseArgs } from "node:util";

import { Connection, keysFromFolder, Refused } from "./seat.mjs";
import { shown, spaces, World } from "./world.mjs";

const USAGE =
  "reference ADDRESS [--seats N] [--rows N] [--agents N] [--not-replayable] [--keys FOLDER]";

function play(seat, { rows, agents }) {
  const worlds = (seat.simulator ??= Array.from({ length: rows }, () => new World(agents)));
  if (seat.action === null) {
    const begins = Array.from(seat.rows, (row) => worlds[row]);
    begins.forEach((world, at) => world.reset(seat.seeds[at]));
    seat.begin(shown(begins));
  } else {
    const actions = typeof seat.action === "number" ? [seat.action] : seat.action;
    worlds.forEach((world, row) => world.step(actions.slice(row * agents, (row + 1) * agents)));
    const rewards = worlds.flatMap((world) => world.rewards);
    const terminated = worlds.map((world) => world.isTerminated);
    const truncated = worlds.map((world) => world.isTruncated);
    seat.tell(shown(worlds), rewards, terminated, truncated);
  }
}

function wishes() {
  const [string, boolean] = [{ type: "string" }, { type: "boolean" }];
  const options = { seats: string, rows: string, agents: string, keys: string };
  const { values, positionals } = parseArgs({
    options: { ...options, "not-replayable": boolean },
    allowPositionals: true,
  });
  if (positionals.length !== 1) throw new TypeError("one address, please");
  const counted = (name) => Number(values[name] ?? 1);
  const [seats, rows, agents] = ["seats", "rows", "agents"].map(counted);
  const keys = values.keys && keysFromFolder(values.keys);
  const replayable = !values["not-replayable"];
  return { address: positionals[0], agents, offer: { seats, rows, replayable, keys } };
}

async function run({ address, agents, offer }) {
  const connection = new Connection(address, spaces(agents), offer);
  try {
    for await (const seat of connection) play(seat, { rows: offer.rows, agents });
  } finally {
    await connection.close();
  }
}

let asked;
try {
  asked = wishes();
  await run(asked);
} catch (error) {
  const isUsage = asked === undefined;
  console.error(isUsage ? `${error.message}\n${USAGE}` : error.message);
  process.exitCode = error instanceof Refused ? 3 : isUsage ? 2 : 1;
}
