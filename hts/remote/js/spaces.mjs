// What a simulator shows and takes; and what it gives, checked against that, as frames of the wire.
//
// Arrays are flat, in C order: rows, then agents, then the shape of the space. A simulator gives
// typed arrays, plain ones, or a number alone.

/** What the simulator gave is not what its own spaces declare. */
export class WrongShape extends Error {}

const ARRAYS = {
  bool: Uint8Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint8: Uint8Array,
  uint16: Uint16Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  float16: Uint16Array, // as the 16 bits that it has
  float32: Float32Array,
  float64: Float64Array,
};
const TERMINATED = 1;
const TRUNCATED = 2;
const NAME_LIMIT = 64;

/** An array of numbers; a bound is one number for all, or nested arrays of the box's shape. */
export function box(shape, dtype = "float32", low = -Infinity, high = Infinity) {
  return { kind: "box", shape, dtype, low, high };
}

/** One whole number from 0 to n - 1. */
export function discrete(n) {
  return { kind: "discrete", n, shape: [], dtype: "int64" };
}

/** Several of them. */
export function multiDiscrete(n) {
  return { kind: "multidiscrete", n, shape: [n.length], dtype: "int64" };
}

/** A float in a message also where it is a whole number. */
export class Float {
  constructor(value) {
    this.value = value;
  }
}

const floats = (bound) => (Array.isArray(bound) ? bound.map(floats) : new Float(bound));

function toPlain(space) {
  if (space.kind !== "box") return [space.kind, space.n];
  return ["box", space.shape, space.dtype, floats(space.low), floats(space.high)];
}

/** Spaces as they stand in a hello. */
export function spacesToPlain({ observation, action, agents }) {
  const fields = observation.map(([name, space]) => [name, toPlain(space)]);
  return new Map(Object.entries({ observation: fields, action: toPlain(action), agents }));
}

function need(given, what) {
  if (!given) throw new RangeError(`an offer has ${what}`);
}

const product = (sizes) => sizes.reduce((all, size) => all * size, 1);
const isCount = (value) => Number.isSafeInteger(value) && value >= 1;

export function isName(value) {
  return typeof value === "string" && /^[^\p{C}]{1,64}$/u.test(value) && value.length <= NAME_LIMIT;
}

function boundFits(bound, shape) {
  if (typeof bound === "number") return !Number.isNaN(bound);
  return Array.isArray(bound) && bound.flat(Infinity).length === product(shape);
}

function checkSpace(space) {
  if (space.kind === "box") {
    need(Object.hasOwn(ARRAYS, space.dtype), "numpy's names of dtypes, such as float32");
    need([space.low, space.high].every((each) => boundFits(each, space.shape)), "bounds that fit");
  } else {
    need([space.n].flat().every(isCount), "something to choose from");
  }
}

/** What a simulator offers, checked; the observation's fields as a list. */
export function offered(spaces, { seats = 1, rows = 1, replayable = true, name = "js" }) {
  const { observation, action, agents = 1 } = spaces;
  const fields = [...(observation instanceof Map ? observation : Object.entries(observation))];
  need(isName(name), "a short name");
  need([seats, rows, agents].every(isCount), "seats, rows and agents, one of each at the least");
  need(fields.length > 0 && fields.every(([field]) => isName(field)), "fields with short names");
  [action, ...fields.map(([, space]) => space)].forEach(checkSpace);
  need(action.dtype === "float32" || action.kind !== "box", "actions of float32 or choices");
  need(product(action.shape) > 0, "actions of one number at the least");
  return { spaces: { observation: fields, action, agents }, seats, rows, replayable, name };
}

/** The bytes that an array lies in, as they are. */
export function bytesOf(array) {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

/** The arrays of one seat. */
export class Shape {
  constructor({ spaces, rows }) {
    this.rows = rows;
    this.agents = spaces.agents;
    this.fields = spaces.observation;
    this.action = spaces.action;
    this.isOne = rows === 1 && spaces.agents === 1 && spaces.action.kind === "discrete";
  }

  /** A frame for each field, of so many rows, that nobody else changes. */
  observation(given, rows) {
    const isWhole = typeof given !== "object" || Array.isArray(given) || ArrayBuffer.isView(given);
    return this.fields.map(([name, space]) => {
      const isOnly = this.fields.length === 1 && isWhole;
      const field = isOnly ? given : given instanceof Map ? given.get(name) : given?.[name];
      const count = rows * this.agents * product(space.shape);
      if (space.dtype === "float16" && !(field instanceof Uint16Array)) {
        throw new WrongShape(`observation '${name}' is of float16: give its bits, a Uint16Array`);
      }
      const array = numbers(field, ARRAYS[space.dtype], count, `observation '${name}'`);
      if (!areValid(array, space)) {
        throw new WrongShape(`observation '${name}' has a number that none of its space is`);
      }
      return Buffer.from(bytesOf(array));
    });
  }

  /** A reward for each agent of each row, as exactly as it is given. */
  reward(given) {
    const array = numbers(given, Float64Array, this.rows * this.agents, "reward");
    if (!array.every((each) => Number.isFinite(Math.fround(each)))) {
      throw new WrongShape("a reward is no finite float32");
    }
    return array;
  }

  /** Both flags of each row as one number. */
  ends(terminated, truncated) {
    const [first, second] = [terminated, truncated].map((given) => this.#flags(given));
    return Uint8Array.from(
      first,
      (flag, row) => (flag ? TERMINATED : 0) + (second[row] ? TRUNCATED : 0),
    );
  }

  #flags(given) {
    if (typeof given === "boolean") return new Array(this.rows).fill(given);
    if (given?.length !== this.rows) {
      throw new WrongShape("terminated and truncated: one flag for each row");
    }
    return [...given];
  }

  /** The rows whose last observations are sent: truncated, and not terminated as well. */
  cut(ends) {
    return [...ends.keys()].filter((row) => ends[row] === TRUNCATED);
  }

  /** These rows of a frame of all rows, one behind the other. */
  some(frame, rows) {
    const size = frame.length / this.rows;
    return Buffer.concat(rows.map((row) => frame.subarray(row * size, (row + 1) * size)));
  }

  /** And the other way round: a frame of these rows, into a frame of all. */
  replace(frame, rows, given) {
    const size = frame.length / this.rows;
    rows.forEach((row, at) => given.copy(frame, row * size, at * size, (at + 1) * size));
  }

  /** The action in a frame: a number, or a flat array; undefined where it is none of this space. */
  readAction(frame) {
    const count = this.rows * this.agents * product(this.action.shape);
    if (this.action.kind === "box") return arrayOf(frame, Float32Array, count);
    const found = arrayOf(frame, BigInt64Array, count);
    if (found === undefined || !areValid(found, this.action)) return undefined;
    return this.isOne ? Number(found[0]) : Int32Array.from(found, Number);
  }

  /** The seeds in a frame; undefined where it has another size. */
  readSeeds(frame) {
    return arrayOf(frame, BigUint64Array, this.rows);
  }
}

/** What was given as an array of this class and size. */
function numbers(given, wanted, count, what) {
  if (given === undefined || given === null) throw new WrongShape(`there is no ${what}`);
  const isLong = wanted === BigInt64Array || wanted === BigUint64Array;
  let array = given;
  if (!(given instanceof wanted)) {
    const flat = ArrayBuffer.isView(given) ? given : [given].flat(Infinity);
    try {
      array = wanted.from(flat, isLong ? BigInt : Number);
    } catch (error) {
      throw new WrongShape(`${what} holds something else than numbers (${error.message})`);
    }
    if (!isLong && !holdsTheSame(array, flat)) {
      throw new WrongShape(`${what} holds what its dtype cannot hold`);
    }
  }
  if (array.length !== count) {
    throw new WrongShape(`${what} has ${array.length} numbers; declared are ${count}`);
  }
  return array;
}

function holdsTheSame(array, given) {
  if (array instanceof Float32Array || array instanceof Float64Array) return true;
  return array.every((each, at) => each === Number(given[at]));
}

function areValid(array, { kind, dtype, n }) {
  if (kind !== "box") {
    const limits = [n].flat();
    return array.every((each, at) => each >= 0n && each < BigInt(limits[at % limits.length]));
  }
  if (dtype === "bool") return array.every((each) => each <= 1);
  if (dtype === "float16") return array.every((each) => (each & 0x7c00) !== 0x7c00);
  return !dtype.startsWith("float") || array.every(Number.isFinite);
}

/** A frame as an array of its own; undefined where it has another size. */
function arrayOf(frame, wanted, count) {
  if (frame.length !== count * wanted.BYTES_PER_ELEMENT) return undefined;
  return new wanted(Uint8Array.from(frame).buffer);
}
