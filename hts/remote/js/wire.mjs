// The messages between a run and the simulators that dial in: bytes out, checked values in.
//
// A message is a head and, behind it, one raw frame for each array. The head is a msgpack array:
// the kind of the message, then its values. PROTOCOL.md, one folder above, says it all. Nothing is
// looked at that is not exactly as agreed: `read` returns null for such a message.

import { Decoder, encode } from "@msgpack/msgpack";

import { Float } from "./spaces.mjs";

export const PROTOCOL = 1;
const HEAD_LIMIT = 1 << 20;
const TEXT_LIMIT = 4096;

// Arrays of the wire are little-endian, and typed arrays are as the machine is.
if (new Uint8Array(Uint16Array.of(1).buffer)[0] !== 1) {
  throw new Error("frames are little-endian, and so has to be the machine");
}

// --- what a simulator says ----------------------------------------------------------------------

/** The beginning of a list or a map: its length, in one, three or five bytes. */
function opening(length, short, long) {
  if (length < 16) return Uint8Array.of(short | length);
  if (length < 1 << 16) return Uint8Array.of(long, length >> 8, length & 0xff);
  const bytes = Buffer.from([long + 1, 0, 0, 0, 0]);
  bytes.writeUInt32BE(length, 1);
  return bytes;
}

/** The pieces of a value: as @msgpack/msgpack writes it, and maps and floats as they are meant. */
function* pieces(value) {
  if (Array.isArray(value)) {
    yield opening(value.length, 0x90, 0xdc);
    for (const each of value) yield* pieces(each);
  } else if (value instanceof Map) {
    yield opening(value.size, 0x80, 0xde);
    for (const pair of value) for (const each of pair) yield* pieces(each);
  } else if (value instanceof Float) {
    yield encode(value.value, { forceIntegerToFloat: true });
  } else {
    yield encode(value);
  }
}

/** A head. */
export function pack(kind, ...values) {
  return Buffer.concat([...pieces([kind, ...values])]);
}

/** The end of a text that is too long for a message. */
export function ending(text) {
  return [...text].slice(-TEXT_LIMIT).join("");
}

// --- what a run says ----------------------------------------------------------------------------

class WholeNumbers extends Decoder {
  // A run says no floats: 1.0 is none of the whole numbers that it says.
  readF32() {
    throw new RangeError("a float");
  }

  readF64() {
    throw new RangeError("a float");
  }
}

const isWhole = (value) => Number.isSafeInteger(value) && value >= 0;
const isText = (value) =>
  typeof value === "string" && value.length <= 2 * TEXT_LIMIT && [...value].length <= TEXT_LIMIT;
const isSeed = (value) => value instanceof Uint8Array && value.length === 8;
const isRows = (value) => Array.isArray(value) && value.every(isWhole);
const isWelcome = (value) =>
  value?.constructor === Object && value.protocol === PROTOCOL && isText(value.run);

const KINDS = new Map([
  ["welcome", [isWelcome]],
  ["take", [isWhole, isWhole, isWhole, isSeed]], // seat, first replica, rows, seed to build with
  ["act", [isWhole, isWhole, isRows]], // seat, turn, rows that begin; actions and seeds behind
  ["again", [isWhole, isWhole]], // seat, turn
  ["drop", [isWhole]],
  ["who", []],
  ["here", []],
  ["refused", [isText]],
  ["over", []],
]);

/** Text that is fit for a terminal: no control characters. */
export function told(text) {
  return text.replace(/(?!\n)\p{C}/gu, "?");
}

/** Whole numbers that came in eight bytes as numbers; too large ones stay what they are. */
function shortened(value) {
  if (Array.isArray(value)) return value.map(shortened);
  if (typeof value !== "bigint" || value > BigInt(Number.MAX_SAFE_INTEGER)) return value;
  return Number(value);
}

/** Reads the messages to a connection whose seats have so many rows. */
export class Reader {
  constructor(rows) {
    this.decoder = new WholeNumbers({
      useBigInt64: true,
      maxStrLength: 4 * TEXT_LIMIT,
      maxBinLength: 64,
      maxArrayLength: rows + 8,
      maxMapLength: 16,
      maxExtLength: 0,
    });
  }

  /** Its kind and values, of the types that the kind has, and frames; null where it is not so. */
  read([head, ...frames]) {
    if (head.length > HEAD_LIMIT) return null;
    let found;
    try {
      found = this.decoder.decode(head);
    } catch {
      return null;
    }
    const [kind, ...values] = Array.isArray(found) ? found.map(shortened) : [];
    const checks = KINDS.get(kind);
    if (checks?.length !== values.length || frames.length !== (kind === "act" ? 2 : 0)) return null;
    return checks.every((check, at) => check(values[at])) ? { kind, values, frames } : null;
  }
}
