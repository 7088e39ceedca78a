// A service on NestJS, whose event handler nacks what it fails at.

import 'reflect-metadata';
import { Controller, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ClientProxyFactory, Ctx, EventPattern, Payload, Transport } from '@nestjs/microservices';
import { lastValueFrom } from 'rxjs';
import amqplib from 'amqplib';
import { deadLetterArguments, deadLetters, fails, handle, isComplete, orders, queue, url } from './orders.mjs';

const options = {
  urls: [url],
  queue,
  queueOptions: { durable: true, arguments: deadLetterArguments },
  prefetchCount: 100,
};

let finish;
const finished = new Promise((resolve) => {
  finish = resolve;
});

class Orders {
  placed(order, context) {
    const channel = context.getChannelRef();
    try {
      handle(order);
      channel.ack(context.getMessage());
    } catch {
      channel.nack(context.getMessage(), false, false);
    }
    if (isComplete()) {
      finish();
    }
  }
}

// What the decorators of TypeScript do.
const method = [Orders.prototype, 'placed'];
EventPattern('order.placed')(...method, Object.getOwnPropertyDescriptor(...method));
Payload()(...method, 0);
Ctx()(...method, 1);
Controller()(Orders);

class Shop {}
Module({ controllers: [Orders] })(Shop);

const connection = await amqplib.connect(url);
const channel = await connection.createChannel();
await channel.assertQueue(deadLetters, { durable: true });
await connection.close();

const service = await NestFactory.createMicroservice(Shop, {
  transport: Transport.RMQ,
  options: { ...options, noAck: false },
  logger: ['error'],
});
await service.listen();
if (fails) {
  const client = ClientProxyFactory.create({ transport: Transport.RMQ, options });
  for (const order of orders()) {
    await lastValueFrom(client.emit('order.placed', order), { defaultValue: undefined });
  }
  await finished;
  await client.close();
}
await finished;
await service.close();
