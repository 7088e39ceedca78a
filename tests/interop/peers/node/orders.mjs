// What the services of the frameworks handle, how their handlers fail, and how they say what they have done.

const { PEER_URL, PEER_QUEUE, PEER_DEAD_LETTERS, PEER_COUNT } = process.env;

export const url = PEER_URL;
export const queue = PEER_QUEUE;
export const deadLetters = PEER_DEAD_LETTERS;
export const count = Number(PEER_COUNT);
export const fails = process.argv[2] === 'fail';
export const deadLetterArguments = { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': deadLetters };

const causes = ['item', 'amount', 'bank'];

export function* orders() {
  for (let number = 0; number < count; number += 1) {
    yield { id: `order-${number}`, number, cause: causes[number % causes.length] };
  }
}

function errorOf({ number, cause }) {
  switch (cause) {
    case 'item':
      return Object.assign(new Error(`there is no item ${number}`), { code: 'NOITEM' });
    case 'amount':
      return Object.assign(new RangeError(`the amount ${number}.50 is refused`), { code: 'EAMOUNT' });
    default:
      return Object.assign(new Error('the bank did not answer'), { code: 'ETIMEDOUT' });
  }
}

const tried = new Set();
let done = 0;

export const isComplete = () => done >= count;

export function handle(order) {
  done += 1;
  if (fails) {
    throw errorOf(order);
  }
  console.log(order.id);
}

// As a service does that retries once: also where it succeeds, it takes its retry, so a message without one left fails for good.
export function handleAtSecondAttempt(order) {
  if (!tried.has(order.id)) {
    tried.add(order.id);
    throw errorOf(order);
  }
  handle(order);
}
