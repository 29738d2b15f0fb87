// What a program with rocketmq-client-nodejs does; a line of JSON for each part.
//
// node node_program.js FOLDER HOST:PORT; the client is in FOLDER/node_modules.

'use strict';

const path = require('node:path');
const [folder, endpoints] = process.argv.slice(2);
const home = path.join(folder, 'node_modules', 'rocketmq-client-nodejs');
const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = require(home);
const { TransactionResolution } = require(
  path.join(home, 'proto', 'apache', 'rocketmq', 'v2', 'definition_pb'),
);

const MS = 60_000;
const options = { endpoints, namespace: '' };

function message(topic, body, more = {}) {
  return { topic, body: Buffer.from(body), ...more };
}

function told(part, found) {
  console.log(JSON.stringify({ part, found }));
}

function described(view) {
  return `${view.body.toString()}#${view.deliveryAttempt}`;
}

async function received(topic, consumerGroup, count) {
  const subscriptions = new Map([[topic, '*']]);
  const consumer = new SimpleConsumer({
    ...options, consumerGroup, subscriptions, awaitDuration: 5_000,
  });
  await consumer.startup();
  const found = [];
  const end = Date.now() + MS;
  while (found.length < count && Date.now() < end) {
    for (const view of await consumer.receive(16, 30_000)) {
      found.push(described(view));
      await consumer.ack(view);
    }
  }
  await consumer.shutdown();
  return found.sort();
}

async function pushed(topic, consumerGroup, count, failing = new Set()) {
  const found = [];
  let isDone;
  const done = new Promise(resolve => { isDone = resolve; });
  const messageListener = {
    async consume(view) {
      found.push(described(view));
      if (failing.delete(view.body.toString())) return ConsumeResult.FAILURE;
      if (found.length >= count) isDone();
      return ConsumeResult.SUCCESS;
    },
  };
  const subscriptions = new Map([[topic, '*']]);
  const consumer = new PushConsumer({ ...options, consumerGroup, subscriptions, messageListener });
  await consumer.startup();
  const limit = setTimeout(isDone, MS);
  await done;
  clearTimeout(limit);
  await consumer.shutdown();
  return found;
}

async function main() {
  const asked = new Set();
  const checker = {
    async check(view) {
      asked.add(view.body.toString());
      return TransactionResolution.COMMIT;
    },
  };
  // One topic each: with several the client misses settings that come before it waits for them.
  const producers = new Map();
  for (const topic of ['Normal', 'Fifo', 'Delay', 'Trans']) {
    const producer = new Producer({ ...options, topic, checker });
    await producer.startup();
    producers.set(topic, producer);
  }
  const send = (one, transaction) => producers.get(one.topic).send(one, transaction);
  for (let number = 0; number < 5; number++) {
    await send(message('Normal', `simple-${number}`));
  }
  told('simple', await received('Normal', 'Simple', 5));
  for (let number = 0; number < 3; number++) {
    await send(message('Normal', `pushed-${number}`));
  }
  const all = await pushed('Normal', 'Pushed', 4 + 5, new Set(['pushed-1']));
  told('pushed', all.filter(one => one.startsWith('pushed')).sort());
  for (let number = 0; number < 6; number++) {
    await send(message('Fifo', `ordered-${number}`, { messageGroup: 'one' }));
  }
  told('ordered', await pushed('Fifo', 'Ordered', 6));
  const due = Date.now() + 2_000;
  await send(message('Delay', 'delayed', { deliveryTimestamp: new Date(due) }));
  const late = await received('Delay', 'Delayed', 1);
  told('delayed', [...late, Date.now() >= due]);
  for (const [body, end] of [['kept', 'commit'], ['dropped', 'rollback'], ['open', null]]) {
    const transaction = producers.get('Trans').beginTransaction();
    await send(message('Trans', body), transaction);
    if (end !== null) await transaction[end]();
  }
  told('transactions', await received('Trans', 'Paid', 2));
  told('checked', [...asked].sort());
  for (const producer of producers.values()) await producer.shutdown();
}

main().then(() => process.exit(0), wrong => {
  console.error(wrong);
  process.exit(1);
});
