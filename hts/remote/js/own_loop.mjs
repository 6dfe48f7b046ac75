// A simulator that keeps its own loop and asks, as the README's: own_loop ADDRESS.

import { OwnSeat } from "./seat.mjs";
import { shown, spaces, World } from "./world.mjs";

const world = new World(1);
const seat = await OwnSeat.dial(process.argv[2], spaces(1));
let action = null;
while (!seat.over) {
  if (action === null) { // an episode begins, also in the middle of one
    world.reset(seat.seed);
    action = await seat.reset(shown([world]));
  } else {
    world.step([action]);
    action = await seat.step(shown([world]), world.rewards, world.isTerminated, world.isTruncated);
  }
}
await seat.close();
