// A service on Moleculer's channels, which retries once and then publishes to the dead-letter queue.

import { Middleware } from '@moleculer/channels';
import { ServiceBroker } from 'moleculer';
import { count, deadLetters, fails, handle, orders, queue, url } from '../orders.mjs';

// The queue of a channel is called after its group and itself.
const [group, channel] = queue.split('.');

const broker = new ServiceBroker({
  logger: { type: 'Console', options: { level: 'error' } },
  middlewares: [
    Middleware({
      adapter: {
        type: 'AMQP',
        options: {
          amqp: { url, queueOptions: { durable: true }, exchangeOptions: { durable: true } },
          maxInFlight: 100,
          maxRetries: 2,
          deadLettering: { enabled: true, queueName: deadLetters },
        },
      },
    }),
  ],
});

let attempts = 0;
let finish;
const finished = new Promise((resolve) => {
  finish = resolve;
});

broker.createService({
  name: 'shop',
  channels: {
    [channel]: {
      group,
      handler(order) {
        attempts += 1;
        if (attempts === (fails ? 2 : 1) * count) {
          finish();
        }
        handle(order);
      },
    },
  },
});

await broker.start();
if (fails) {
  for (const order of orders()) {
    await broker.sendToChannel(channel, order);
  }
}
await finished;
// It closes the connection once the last message is settled.
await broker.stop();
