// A simulator with every kind of space, two rows and two agents, that makes mistakes first:
// every_space CLIENT ADDRESS PATIENCE. It shows the actions that it was given.

const [client, address, patience] = process.argv.slice(2);
const { box, discrete, multiDiscrete, OwnSeat, ...errors } = await import(client);
const { Refused, TimedOut, WrongShape } = errors;

const observation = {
  flag: box([2], "bool", 0, 1),
  half: box([], "float16"),
  deep: box([2, 1], "float64", [[-1], [0]], [[1], [2]]),
  large: box([1], "uint64", 0, 1e19),
  one: discrete(5),
  several: multiDiscrete([2, 3]),
};
const spaces = { observation, action: box([2], "float32", -1, 1), agents: 2 };
const options = { rows: 2, replayable: false, patience: Number(patience) };

function shown(deep) {
  const places = deep.length / 2; // rows times agents
  const each = (value) => new Array(places).fill(value);
  const half = new Uint16Array(places).fill(0x3c00);
  const large = each(0xfedcba9876543210n);
  return { flag: each([true, true]), half, deep, large, one: each(4), several: each([1, 2]) };
}

/** The mistakes that the client has not noticed. */
async function missed(call) {
  try {
    await call();
  } catch (error) {
    if (error instanceof WrongShape) return 0;
    throw error;
  }
  return 1;
}

async function play(seat) {
  let [action, unnoticed] = [null, 0];
  while (!seat.over) {
    if (action === null) {
      const right = shown(new Array(4 * seat.held.rows.length).fill(0.5));
      unnoticed += await missed(() => seat.reset({ ...right, one: right.one.fill(5, 0, 1) }));
      unnoticed += await missed(() => seat.reset(1.0));
      right.one.fill(4);
      action = await seat.reset(right);
    } else {
      const right = shown([...action]);
      const wrong = { ...right, deep: [NaN, ...right.deep.slice(1)] };
      unnoticed += await missed(() => seat.step(wrong, [0, 0, 0, 0]));
      unnoticed += await missed(() => seat.step(right, 1.0));
      const facts = new Map([[1, { score: 1.5 }]]);
      const rewards = [0.25, 0.75, -1, -2];
      action = await seat.step(right, rewards, [true, false], [false, true], facts);
    }
  }
  return unnoticed;
}

try {
  const seat = await OwnSeat.dial(address, spaces, options);
  process.exitCode = (await play(seat)) ? 5 : 0;
  await seat.close();
} catch (error) {
  if (!(error instanceof Refused || error instanceof TimedOut)) throw error;
  process.stderr.write(error.message);
  process.exit(error instanceof Refused ? 3 : 4);
}
