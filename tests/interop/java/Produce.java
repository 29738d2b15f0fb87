import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;

/**
 * Sends --count messages and reports each: event "sent" with its key, or "failed" with the reason.
 *
 * --namesrv A --topic T --group G --mode sync,async,oneway,batch,select,ordered (one after the
 * other, each --count N messages from number --first I; with more than one its name joins the prefix)
 * --tags a,b (in turn) --prefix P (key and body are P-number) --batch N (messages a batch)
 * --rate N (a second, 0 = as fast as it goes) --more (the last mode goes on until a line comes in)
 * --routes MS (how often it asks for routes)
 * --insist (sync: try each again until it is accepted)
 * --size N (pads the body with dots to N bytes) --hold (stay online until a line comes in)
 * --orders N (with mode ordered: message n is of order n % N, those of one go to one queue)
 * --delay N (a delay level) --trace, --traceTopic T (message traces)
 */
public final class Produce {
    private static String topic;
    private static String prefix;
    private static List<String> tags;
    private static int size;
    private static int delay;
    private static volatile boolean told;

    public static void main(String[] args) throws Exception {
        Report.begin();
        Orders orders = new Orders(args);
        topic = orders.text("topic");
        prefix = orders.text("prefix", "m");
        tags = orders.list("tags");
        size = orders.number("size", 0);
        delay = orders.number("delay", 0);
        DefaultMQProducer producer = new DefaultMQProducer(orders.text("group", "PG_interop"));
        producer.setNamesrvAddr(orders.text("namesrv"));
        producer.setMqClientApiTimeout(Report.SEND_MS);
        producer.setPollNameServerInterval(orders.number("routes", 30_000));
        producer.setSendMsgTimeout(orders.number("timeout", Report.SEND_MS));
        Recent.trace(producer, orders);
        producer.start();
        Report.line("started", "client", producer.buildMQClientId());
        int first = orders.number("first", 0);
        int end = first + orders.number("count", 1);
        List<String> modes = orders.list("mode");
        if (modes.isEmpty()) {
            modes.add("sync");
        }
        if (orders.flag("more")) {
            Thread listener = new Thread(Produce::listen);
            listener.setDaemon(true);
            listener.start();
        }
        AtomicInteger failed = new AtomicInteger();
        int count = 0;
        for (int at = 0; at < modes.size(); at++) {
            String mode = modes.get(at);
            if (modes.size() > 1) {
                prefix = orders.text("prefix", "m") + "-" + mode;
            }
            boolean more = orders.flag("more") && at == modes.size() - 1;
            count += run(producer, mode, first, end, more, orders, failed);
        }
        Report.line("done", "count", count, "failed", failed.get());
        if (orders.flag("hold")) {
            Report.order();
        }
        producer.shutdown();
        Runtime.getRuntime().halt(failed.get() == 0 ? 0 : 1);
    }

    private static void listen() {
        try {
            Report.order();
        } catch (IOException e) {
            Report.line("failed", "reason", e.toString());
        }
        told = true;
    }

    private static int run(DefaultMQProducer producer, String mode, int first, int end,
        boolean more, Orders orders, AtomicInteger failed) throws Exception {
        int rate = orders.number("rate", 0);
        int step = mode.equals("batch") ? orders.number("batch", 8) : 1;
        long start = System.nanoTime();
        CountDownLatch answers = new CountDownLatch(mode.equals("async") ? end - first : 0);
        int at = first;
        for (int next; at < end || more && !told; at = next) {
            next = at < end ? Math.min(end, at + step) : at + step;
            if (rate > 0) {
                long due = start + (at - first) * 1_000_000_000L / rate;
                Thread.sleep(Math.max(0, (due - System.nanoTime()) / 1_000_000));
            }
            Message message = message(at);
            switch (mode) {
                case "sync":
                    sync(producer, message, orders.flag("insist"), failed);
                    break;
                case "select":
                    sent(message, producer.send(message, new SelectMessageQueueByHash(),
                        message.getKeys()));
                    break;
                case "ordered":
                    int order = at % orders.number("orders", 1);
                    message.putUserProperty("order", Integer.toString(order));
                    sent(message, producer.send(message, (queues, unused, one) ->
                        queues.get((Integer) one % queues.size()), order));
                    break;
                case "async":
                    producer.send(message, callback(message, answers, failed));
                    break;
                case "oneway":
                    producer.sendOneway(message);
                    Report.line("sent", "key", message.getKeys(), "msgId",
                        MessageClientIDSetter.getUniqID(message));
                    break;
                case "batch":
                    List<Message> batch = new ArrayList<>();
                    for (int one = at; one < next; one++) {
                        batch.add(message(one));
                    }
                    SendResult result = producer.send(batch);
                    Report.line("batch", "keys", batch.stream().map(Message::getKeys).toArray(),
                        "status", result.getSendStatus().name(), "msgIds", result.getMsgId(),
                        "offsetMsgIds", result.getOffsetMsgId(),
                        "queue", result.getMessageQueue().getQueueId(),
                        "offset", result.getQueueOffset());
                    break;
                default:
                    throw new IllegalArgumentException("no such mode: " + mode);
            }
        }
        answers.await();
        return at - first;
    }

    private static Message message(int number) {
        String name = prefix + "-" + number;
        StringBuilder body = new StringBuilder(name);
        while (body.length() < size) {
            body.append('.');
        }
        String tag = tags.isEmpty() ? "" : tags.get(number % tags.size());
        Message message = new Message(topic, tag, name,
            body.toString().getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("number", Integer.toString(number));
        if (delay > 0) {
            message.setDelayTimeLevel(delay);
        }
        return message;
    }

    private static void sync(DefaultMQProducer producer, Message message, boolean insist,
        AtomicInteger failed) throws InterruptedException {
        while (true) {
            try {
                sent(message, producer.send(message));
                return;
            } catch (Exception e) {
                Report.line("failed", "key", message.getKeys(), "reason", e.toString());
                if (!insist) {
                    failed.incrementAndGet();
                    return;
                }
                Thread.sleep(100);
            }
        }
    }

    private static SendCallback callback(Message message, CountDownLatch answers,
        AtomicInteger failed) {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                sent(message, result);
                answers.countDown();
            }

            @Override
            public void onException(Throwable e) {
                Report.line("failed", "key", message.getKeys(), "reason", e.toString());
                failed.incrementAndGet();
                answers.countDown();
            }
        };
    }

    private static void sent(Message message, SendResult result) {
        Report.line("sent", "key", message.getKeys(), "status", result.getSendStatus().name(),
            "msgId", result.getMsgId(), "offsetMsgId", result.getOffsetMsgId(),
            "broker", result.getMessageQueue().getBrokerName(),
            "queue", result.getMessageQueue().getQueueId(), "offset", result.getQueueOffset(),
            "region", result.getRegionId());
    }
}
