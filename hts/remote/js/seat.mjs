// For simulators: dial in to a run, and be trained on. Needs npm's zeromq and @msgpack/msgpack.
//
//     const connection = new Connection("tcp://127.0.0.1:5555", spaces, { seats: 4 });
//     for await (const seat of connection) {
//       const game = (seat.simulator ??= new Game(seat.buildSeed));
//       if (seat.action === null) seat.begin(game.reset(seat.seed));
//       else seat.tell(...game.step(seat.action));
//     }
//
// `Connection` hands out whoever's turn it is, and nobody waits for anybody else. `OwnSeat` is for
// one simulator with a loop of its own. When the run goes away, and comes back, everything goes on
// by itself.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { Dealer } from "zeromq";

import { offered } from "./spaces.mjs";
import { Talk } from "./talk.mjs";

export { box, discrete, multiDiscrete, WrongShape } from "./spaces.mjs";
export { Refused, Seat } from "./talk.mjs";

/** No run has said a word for as long as one was to be waited for. */
export class TimedOut extends Error {}

const PING_EVERY = 1000; // milliseconds of silence before a simulator that waits says so

function readKey(path, name) {
  const line = new RegExp(`^\\s*${name}\\s*=\\s*"([^"]{40})"`, "m");
  const found = line.exec(readFileSync(path, "utf8"));
  if (found === null) throw new Error(`${path}: holds no ${name}`);
  return found[1];
}

/** CURVE keys from two files of zmq.auth: the run's public key, and one's own secret one. */
export function keysFromFiles(run, own) {
  const [ownPublic, secret] = ["public-key", "secret-key"].map((name) => readKey(own, name));
  return { run: readKey(run, "public-key"), own: ownPublic, secret };
}

/** The same from a folder that holds run.key and one NAME.key_secret, as hts-keys makes them. */
export function keysFromFolder(folder) {
  const isOwn = (name) => name.endsWith(".key_secret") && name !== "run.key_secret";
  const own = readdirSync(folder).filter(isOwn);
  if (own.length !== 1) {
    throw new Error(`${folder}: a simulator's folder holds one NAME.key_secret`);
  }
  return keysFromFiles(join(folder, "run.key"), join(folder, own[0]));
}

/** A socket, set up as every client has to. */
function dealer(address, keys) {
  const curve = keys && {
    curveServerKey: keys.run,
    curvePublicKey: keys.own,
    curveSecretKey: keys.secret,
  };
  const socket = new Dealer({
    linger: 0,
    reconnectInterval: 50,
    reconnectMaxInterval: 1000,
    heartbeatInterval: 2000, // they also go out from a busy step
    heartbeatTimeout: 10_000,
    sendTimeout: 0,
    ...curve,
  });
  socket.connect(address);
  return socket;
}

/**
 * A simulator's connection to a run, or to one run after the other.
 *
 * Spaces: `{ observation: { name: space, ... }, action: space, agents }`; the order of the fields
 * counts (a Map keeps it also for names such as "1"). Options: `seats`, `rows` (replicas of each
 * seat, which are stepped together), `replayable`, `name`, `keys` (in Z85: `run`, the public key;
 * `own` and `secret`), `patience` (seconds without a word from any run, then TimedOut).
 */
export class Connection {
  #talk;
  #socket;
  #patience;
  #failure = null;
  #waiters = [];
  #isSending = false;
  #sent = null;
  #isClosed = false;

  constructor(address, spaces, { keys, patience = Infinity, ...offer } = {}) {
    this.#patience = 1000 * patience;
    this.#talk = new Talk(offered(spaces, offer), () => this.#flush());
    this.#socket = dealer(address, keys);
    this.#flush();
    this.#listen().catch((error) => this.#fail(error));
  }

  /** The run needs no simulators any more. */
  get over() {
    return this.#talk.over;
  }

  /** Whoever's turn it is, one after the other, until the run is over. */
  async *[Symbol.asyncIterator]() {
    for (let seat = await this.next(); seat !== null; seat = await this.next()) yield seat;
  }

  /** A seat that may move; null when the run is over. */
  async next() {
    for (;;) {
      if (this.#failure !== null) throw this.#failure;
      const seat = this.#talk.nextTurn();
      if (seat !== null || this.over || this.#isClosed) return seat;
      await new Promise((resolve) => this.#waiters.push(resolve));
    }
  }

  /** Leave: the seats are free at once. */
  async close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#talk.bye();
    await this.#sent;
    this.#socket.linger = 200;
    this.#socket.close();
    this.#wake();
  }

  #wake() {
    this.#waiters.splice(0).forEach((resolve) => resolve());
  }

  #fail(error) {
    if (!this.#isClosed) this.#failure ??= error;
    this.#wake();
  }

  /** Send what was said, one message at a time. */
  #flush() {
    if (this.#isSending) return;
    this.#isSending = true;
    this.#sent = this.#send().catch((error) => this.#fail(error));
  }

  async #send() {
    await null; // what is said at once is sent in one go, and behind a hello that is due
    try {
      let frames;
      while ((frames = this.#talk.nextToSay()) !== undefined) await this.#sendOne(frames);
    } finally {
      this.#isSending = false; // at once: whatever is said from here on needs another flush
    }
  }

  async #sendOne(frames) {
    try {
      await this.#socket.send(frames);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      this.#talk.forgetToSay();
    }
  }

  /** Hear whatever is said, until the run is over; say what is waited for where it is not. */
  async #listen() {
    let heard = performance.now();
    let quietSince = heard;
    while (!this.over && !this.#isClosed) {
      const frames = await this.#receive(quietSince + PING_EVERY - performance.now());
      const now = performance.now();
      if (frames !== null) heard = now;
      if (frames !== null && this.#talk.hear(frames)) quietSince = now;
      if (now - quietSince >= PING_EVERY) {
        quietSince = now;
        this.#talk.ping();
      }
      if (now - heard > this.#patience) {
        throw new TimedOut(`no run has said a word for ${this.#patience / 1000} s`);
      }
      if (this.over || this.#talk.turns.size > 0) this.#wake();
    }
  }

  /** One message; null where none has come for so many milliseconds. */
  async #receive(most) {
    this.#socket.receiveTimeout = Math.max(0, Math.ceil(most));
    try {
      return await this.#socket.receive();
    } catch (error) {
      if (error.code === "EAGAIN") return null;
      throw error;
    }
  }
}

/** One seat, for a simulator that keeps its own loop: it asks, and waits for the answer. */
export class OwnSeat {
  #connection;
  #seat = null;

  constructor(connection) {
    this.#connection = connection;
  }

  /** Dial in, and wait until the run has a seat; options are those of a connection. */
  static async dial(address, spaces, options = {}) {
    const found = new OwnSeat(new Connection(address, spaces, { ...options, seats: 1 }));
    await found.#wait();
    return found;
  }

  /** The run needs no simulators any more. */
  get over() {
    return this.#seat === null;
  }

  /** The seat of this turn: its replica, its seeds, the rows that begin. */
  get held() {
    if (this.over) throw new Error("the run is over: there is nothing to ask it for");
    return this.#seat;
  }

  /** What the episode that begins now is to be seeded with. */
  get seed() {
    return this.held.seed;
  }

  /** An episode has begun and shows this; the action, or null where it begins again. */
  async reset(observation) {
    this.held.begin(observation);
    return this.#wait();
  }

  /** What came of the action; the next one, or null where an episode begins. */
  async step(observation, reward, terminated = false, truncated = false, facts = {}) {
    this.held.tell(observation, reward, terminated, truncated, facts);
    return this.#wait();
  }

  /** Leave. */
  async close() {
    await this.#connection.close();
  }

  async #wait() {
    this.#seat = await this.#connection.next();
    return this.#seat === null ? null : this.#seat.action;
  }
}
