// Send a message and receive it, with rocketmq-client-nodejs through `aerobee up --grpc`.

'use strict';

const { Producer, SimpleConsumer } = require('rocketmq-client-nodejs');

const endpoints = process.argv[2] ?? '127.0.0.1:8081';

async function main() {
  const producer = new Producer({ endpoints, namespace: '', topic: 'orders' });
  await producer.startup();
  const receipt = await producer.send({ topic: 'orders', body: Buffer.from('12 EUR') });
  console.log('sent', receipt.messageId);

  const consumer = new SimpleConsumer({
    endpoints, namespace: '', consumerGroup: 'billing', subscriptions: new Map([['orders', '*']]),
    awaitDuration: 5_000,
  });
  await consumer.startup();
  let received = [];
  while (received.length === 0) received = await consumer.receive(16, 30_000);
  for (const message of received) {
    console.log('received', message.body.toString());
    await consumer.ack(message);
  }
  await consumer.shutdown();
  await producer.shutdown();
}

main().then(() => process.exit(0));
