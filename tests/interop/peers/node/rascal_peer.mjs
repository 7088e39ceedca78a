// A service on rascal, which republishes what failed once and then dead-letters it.

import rascal from 'rascal';
import { count, deadLetterArguments, deadLetters, fails, handleAtSecondAttempt, orders, queue, url } from './orders.mjs';

const config = {
  vhosts: {
    shop: {
      connection: { url },
      exchanges: { shop: { type: 'topic' } },
      queues: {
        [deadLetters]: {},
        [queue]: { options: { arguments: deadLetterArguments } },
      },
      bindings: { placed: { source: 'shop', destination: queue, bindingKey: 'order.placed' } },
      publications: { placed: { exchange: 'shop', routingKey: 'order.placed' } },
      subscriptions: {
        placed: { queue, prefetch: 100, redeliveries: { counter: 'memory', limit: 10 } },
      },
      publicationChannelPools: { regularPool: { min: 1, max: 1 }, confirmPool: { min: 1, max: 10 } },
    },
  },
  redeliveries: { counters: { memory: { type: 'inMemory' } } },
};

const broker = await rascal.BrokerAsPromised.create(rascal.withDefaultConfig(config));
broker.on('error', (error) => {
  console.error(error);
  process.exitCode = 1;
});
if (fails) {
  for (const order of orders()) {
    const publication = await broker.publish('placed', order);
    await new Promise((resolve, reject) => publication.on('success', resolve).on('error', reject));
  }
}
const subscription = await broker.subscribe('placed');
let settled = 0;
await new Promise((resolve) => {
  subscription.on('message', (message, order, ackOrNack) => {
    const settle = (error) => {
      ackOrNack(error, error && [{ strategy: 'republish', attempts: 1 }, { strategy: 'nack' }], () => {
        settled += 1;
        // Each has two attempts, which may be settled in any order.
        if (settled === 2 * count) {
          resolve();
        }
      });
    };
    try {
      handleAtSecondAttempt(order);
    } catch (error) {
      return settle(error);
    }
    return settle();
  });
});
await broker.shutdown();
