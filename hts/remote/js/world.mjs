// The reference simulator of PROTOCOL.md: one replica, in whole numbers of 64 bits.

import { box, discrete } from "./seat.mjs";

const GOLDEN = 0x9e3779b97f4a7c15n;
const LONGEST = 20;

const word = (x) => BigInt.asUintN(64, x);

function mix(x) {
  x = word(x);
  x = word((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n);
  x = word((x ^ (x >> 27n)) * 0x94d049bb133111ebn);
  return x ^ (x >> 31n);
}

export function spaces(agents) {
  const observation = { picture: box([2, 8], "uint8", 0, 255), values: box([4]) };
  return { observation, action: discrete(3), agents };
}

export class World {
  constructor(agents) {
    this.agents = Array.from({ length: agents }, (_, agent) => BigInt(agent));
  }

  reset(seed) {
    this.state = mix(seed + GOLDEN);
    this.age = 0;
  }

  /** One action for each agent. */
  step(actions) {
    for (const agent of this.agents) {
      this.state = mix(this.state + GOLDEN * BigInt(actions[agent] + 1) + agent);
    }
    this.age += 1;
  }

  get rewards() {
    return this.agents.map((agent) => Number(mix(this.state + agent) >> 56n) / 256 - 0.5);
  }

  get isTerminated() {
    return (this.state & 31n) === 0n;
  }

  get isTruncated() {
    return this.age === LONGEST;
  }

  /** The words that everything shown is read off: four for each agent. */
  get words() {
    const at = [1n, 2n, 3n, 4n];
    return this.agents.map((agent) => at.map((each) => mix(this.state + GOLDEN * each + agent)));
  }
}

/** What these replicas show, one behind the other. */
export function shown(worlds) {
  const words = worlds.flatMap((world) => world.words);
  const picture = BigUint64Array.from(words.flatMap((four) => four.slice(0, 2)));
  const values = Float32Array.from(words.flat(), (each) => Number(each >> 40n) / 2 ** 24);
  return { picture: new Uint8Array(picture.buffer), values };
}
