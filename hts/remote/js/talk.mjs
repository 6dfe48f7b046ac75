// A simulator's side of the conversation, without any socket: what to say, and whose turn it is.
//
// At each of its turns a seat either begins episodes (`action` is null) or takes an action, and
// says where it stands then:
//
//     given a seat -> begin -> turn: action -> tell -> turn: action -> ... -> an end -> begin
//
// The run may have lost its own place meanwhile, or somebody else's: then a seat's next turn is to
// begin an episode, though its last one has not ended. What is said twice is said alike, so
// whatever gets lost between both sides is asked for again.

import { randomBytes } from "node:crypto";

import { bytesOf, isName, Shape, spacesToPlain, WrongShape } from "./spaces.mjs";
import { ending, pack, PROTOCOL, Reader, told } from "./wire.mjs";

const FACTS_LIMIT = 62; // of an episode, beside its return and length

/** The run does not take this simulator, and says why. */
export class Refused extends Error {}

/** What a run asks a seat for: an action to be taken (null: begin every row), and what then. */
function isAlike(word, other) {
  if (!other || word.turn !== other.turn || (word.action === null) !== (other.action === null)) {
    return false;
  }
  return word.action !== null || word.seeds.every((seed, row) => seed === other.seeds[row]);
}

/** One place in a run: whoever holds it steps its replicas. */
export class Seat {
  /** What is to be taken now: a number, or a flat array; null where episodes begin. */
  action = null;
  /** The rows that begin an episode now, and the seed of each of them. */
  rows = [];
  seeds = new BigUint64Array();
  /** It is somebody else's now: what is told here is not heard. */
  gone = false;
  /** Whatever steps here: for whoever uses the seat. */
  simulator = undefined;

  #talk;
  #shape;
  #said = null;
  #turn = -1; // of what was said last
  #word = null; // what it is working on
  #before = null; // and has worked on before that
  #later = null; // what was asked for while somebody was at work on that
  #atWork = false;
  #ended = null; // it waits for the observations that episodes begin with
  #total;
  #length;

  constructor(talk, number, first, buildSeed) {
    this.number = number;
    /** The first replica of the seat: the only one, unless it steps several together. */
    this.replica = first;
    /** What a simulator draws while it is built follows from this. */
    this.buildSeed = Buffer.from(buildSeed).readBigUInt64LE();
    this.#talk = talk;
    this.#shape = new Shape(talk.offer);
    this.#total = new Float64Array(talk.offer.rows);
    this.#length = new Float64Array(talk.offer.rows);
  }

  /** The seed of the episode that begins now, where the seat has one row. */
  get seed() {
    return this.seeds[0];
  }

  get waits() {
    return this.#word === null;
  }

  /** Its number and the turn of what it said last. */
  get standing() {
    return [this.number, this.#turn];
  }

  /** The rows in `rows` have begun an episode with their seeds, and show this. */
  begin(observation) {
    this.#needTurn(this.action === null, "to take an action: tell what came of it");
    const first = this.#shape.observation(observation, this.rows.length);
    if (!this.#isWanted()) return;
    for (const row of this.rows) this.#total[row] = this.#length[row] = 0;
    const stand = this.#ended;
    this.#ended = null;
    if (stand) {
      stand.observation.forEach((frame, at) => this.#shape.replace(frame, this.rows, first[at]));
      this.#say(stand);
    } else {
      const { rows, agents } = this.#shape;
      const [reward, ends] = [new Float32Array(rows * agents), new Uint8Array(rows)];
      this.#say({ observation: first, reward, ends, last: [], facts: new Map() });
    }
  }

  /**
   * What came of the action. Where an episode ended, `begin` follows.
   *
   * `facts` are numbers that are known about an episode that ended ("score"): an object, or where
   * the seat has several rows a Map of such by row. Its return and length are counted here.
   */
  tell(observation, reward, terminated, truncated, facts = {}) {
    this.#needTurn(this.action !== null, "to begin an episode: reset it, and begin");
    const { rows } = this.#shape;
    const shown = this.#shape.observation(observation, rows);
    const rewards = this.#shape.reward(reward);
    const ends = this.#shape.ends(terminated, truncated);
    const given = facts instanceof Map ? facts : new Map([[0, facts]]);
    const known = new Map([...given].map(([row, each]) => [row, checkedFacts(each)]));
    if (!this.#isWanted()) return;
    this.#count(rewards);
    const stand = { observation: shown, reward: Float32Array.from(rewards), ends, last: [] };
    this.#endAsAsked(stand);
    this.#finish(stand, known);
  }

  /** Its simulator cannot go on: the run hears why, and somebody else may take the seat. */
  fail(why) {
    if (this.gone) return;
    this.#talk.say([pack("fail", this.number, ending(String(why)))]);
    this.#talk.drop(this.number);
  }

  // --- for the conversation ---------------------------------------------------------------------

  /** Somebody works on its turn now: nothing changes below their hands. */
  handOut() {
    this.#atWork = true;
    return this;
  }

  /** The run's word; one that was heard before, or is late, or no word at all, changes nothing. */
  hear(turn, begins, [actions, frame]) {
    const { rows } = this.#shape;
    const action = actions.length ? this.#shape.readAction(actions) : null;
    const seeds = this.#shape.readSeeds(frame);
    const some = [...new Set(begins)].sort((a, b) => a - b);
    if (action === undefined || seeds === undefined || some.some((row) => row >= rows)) return;
    if (action === null && some.length !== rows) return;
    const word = { turn, begins: some, action, seeds };
    const pending = this.#later ?? this.#word;
    if (isAlike(word, pending ?? this.#before)) return;
    // Actions are for whoever has said the turn before, and has not to begin anew first.
    const beginsFirst = pending !== null && pending.action === null;
    if (action !== null && (!this.#said || beginsFirst || turn !== this.#turn + 1)) return;
    if (this.#atWork) this.#later = word;
    else this.#take(word);
  }

  /** What was said at this turn is asked for once more. */
  again(turn) {
    if (this.#said && turn === this.#turn) this.#talk.say(this.#said);
  }

  #take(word) {
    this.#word = word;
    this.#ended = null;
    this.action = word.action;
    this.rows = word.action === null ? word.begins : [];
    this.seeds = word.action === null ? word.seeds : new BigUint64Array();
    this.#talk.turns.add(this);
  }

  #needTurn(isRight, what) {
    if (!this.#atWork && !this.gone) throw new Error("it is not this seat's turn");
    if (!isRight) throw new Error(`this seat's turn is ${what}`);
  }

  /** Whoever was at work is back; false where the run wants something else by now. */
  #isWanted() {
    this.#atWork = false;
    const later = this.#later;
    this.#later = null;
    if (later !== null && !this.gone) this.#take(later);
    return later === null && !this.gone;
  }

  #count(rewards) {
    const { rows, agents } = this.#shape;
    for (let row = 0; row < rows; row++) {
      let sum = 0;
      for (let agent = 0; agent < agents; agent++) sum += rewards[row * agents + agent];
      this.#total[row] += sum / agents;
      this.#length[row] += 1;
    }
  }

  /** The run begins the episodes of some rows again, however these went. */
  #endAsAsked({ reward, ends }) {
    const { agents } = this.#shape;
    for (const row of this.#word.begins) {
      reward.fill(0, row * agents, (row + 1) * agents);
      ends[row] = 0;
    }
  }

  /** Say it, or wait for the observations that the next episodes begin with. */
  #finish(stand, known) {
    const ended = [...stand.ends.keys()].filter((row) => stand.ends[row] !== 0);
    const cut = this.#shape.cut(stand.ends);
    if (cut.length) stand.last = stand.observation.map((frame) => this.#shape.some(frame, cut));
    stand.facts = new Map(
      ended.map((row) => {
        const own = [["return", this.#total[row]], ["length", this.#length[row]]];
        return [row, new Map([...own, ...(known.get(row) ?? [])])];
      }),
    );
    const begins = [...ended, ...this.#word.begins].sort((a, b) => a - b);
    if (begins.length === 0) {
      this.#say(stand);
      return;
    }
    this.#ended = stand;
    this.action = null;
    this.rows = begins;
    this.seeds = BigUint64Array.from(begins, (row) => this.#word.seeds[row]);
    this.#talk.turns.add(this);
  }

  #say({ observation, reward, ends, last, facts }) {
    this.#turn = this.#word.turn;
    this.#before = this.#word;
    this.#word = null;
    const head = pack("stand", this.number, this.#turn, facts);
    this.#said = [head, bytesOf(reward), bytesOf(ends), ...observation, ...last];
    this.#talk.say(this.#said);
  }
}

function checkedFacts(facts) {
  const found = Object.entries(facts).map(([name, fact]) => [name, Number(fact)]);
  const areFacts = found.every(([name, fact]) => isName(name) && Number.isFinite(fact));
  if (!areFacts || found.length > FACTS_LIMIT) {
    throw new WrongShape("facts are a few finite numbers with short names");
  }
  return found;
}

/** Everything that one connection says and hears. */
export class Talk {
  seats = new Map();
  turns = new Set(); // seats that nobody works on, and that may move, the oldest first
  over = false;

  #outbox = [];
  #helloIsDue = true;
  #session = randomBytes(16);
  #run = "";
  #reader;
  #onSay;

  /** `onSay` is called when there is something to send. */
  constructor(offer, onSay) {
    this.offer = offer;
    this.#reader = new Reader(offer.rows);
    this.#onSay = onSay;
  }

  /** Put a message into the outbox. */
  say(frames) {
    this.#outbox.push(frames);
    this.#onSay();
  }

  /** What is to be sent now, the oldest first; who this is comes before where its seats stand. */
  nextToSay() {
    if (!this.#helloIsDue) return this.#outbox.shift();
    this.#helloIsDue = false;
    return this.#hello();
  }

  /** Nobody is there to hear it: it is asked for again. */
  forgetToSay() {
    this.#outbox.length = 0;
  }

  /** Nothing was heard for a while: say what is waited for. */
  ping() {
    const waiting = [...this.seats.values()].filter((seat) => seat.waits);
    this.say([pack("ping", waiting.map((seat) => seat.standing))]);
  }

  /** Leave: whoever else is there may take the seats. */
  bye() {
    this.say([pack("bye")]);
  }

  /** A seat that may move, for somebody to work on; null where there is none. */
  nextTurn() {
    for (const seat of this.turns) {
      this.turns.delete(seat);
      return seat.handOut();
    }
    return null;
  }

  /** One message of the run's; false where it says no more than that the run is there. */
  hear(message) {
    const found = this.#reader.read(message);
    if (found === null || found.kind === "here") return false;
    const [first, ...rest] = found.values;
    if (found.kind === "welcome") this.#welcome(first.run);
    else if (found.kind === "take") this.#take(first, ...rest);
    else if (found.kind === "act") this.seats.get(first)?.hear(...rest, found.frames);
    else if (found.kind === "again") this.seats.get(first)?.again(...rest);
    else if (found.kind === "drop") this.drop(first);
    else if (found.kind === "refused") throw new Refused(told(first));
    else if (found.kind === "over") this.over = true;
    else this.#who();
    return true;
  }

  /** A seat is held no more. */
  drop(number) {
    const seat = this.seats.get(number);
    if (seat === undefined) return;
    seat.gone = true;
    this.seats.delete(number);
    this.turns.delete(seat);
  }

  #who() {
    this.#helloIsDue = true;
    this.#onSay();
  }

  #hello() {
    const { spaces, ...offer } = this.offer;
    const held = [...this.seats.values()].map((seat) => seat.standing);
    const [session, run] = [this.#session, this.#run];
    const facts = { protocol: PROTOCOL, ...offer, session, run, held };
    return [pack("hello", new Map([...Object.entries(facts), ["spaces", spacesToPlain(spaces)]]))];
  }

  #welcome(run) {
    if (run !== this.#run) [...this.seats.keys()].forEach((number) => this.drop(number));
    this.#run = run;
  }

  #take(number, first, rows, buildSeed) {
    if (rows !== this.offer.rows || this.seats.has(number)) return;
    this.seats.set(number, new Seat(this, number, first, buildSeed));
  }
}
