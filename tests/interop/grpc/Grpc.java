import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * RocketMQ's gRPC client 5 with a proxy: every kind of message and of consumer, all at the same time.
 * Its topics and groups are there before. Each part reports what came of it in one line, messages as
 * "body#attempt".
 *
 * --proxy HOST:PORT [--tls]
 */
public final class Grpc {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Duration HIDDEN = Duration.ofSeconds(60);
    private static final long ENOUGH_MS = 120_000;
    private static final long DELAY_MS = 4_000;
    private static ClientConfiguration proxy;

    private Grpc() {
    }

    public static void main(String[] args) throws Exception {
        Report.begin();
        Orders orders = new Orders(args);
        proxy = ClientConfiguration.newBuilder()
            .setEndpoints(orders.text("proxy"))
            .enableSsl(orders.flag("tls"))
            .setRequestTimeout(Duration.ofSeconds(30))
            .build();
        Producer producer = patiently(PROVIDER.newProducerBuilder()
            .setClientConfiguration(proxy).setTopics("Normal", "Fifo", "Delay")::build);
        List<Callable<Void>> parts = List.of(
            () -> simple(producer), () -> hidden(producer), () -> selected(producer),
            () -> pushed(producer), () -> ordered(producer), () -> delayed(producer), Grpc::transactions);
        for (Future<Void> part : Executors.newCachedThreadPool().invokeAll(parts)) {
            part.get();
        }
        producer.close();
        Report.line("done");
        Runtime.getRuntime().halt(0);
    }

    private static Void simple(Producer producer) throws Exception {
        for (int number = 0; number < 5; number++) {
            producer.send(message("Normal", "simple-" + number).setTag("simple").build());
        }
        try (SimpleConsumer consumer = consumer("Simple", "Normal", new FilterExpression("simple"))) {
            Report.line("simple", "found", receive(consumer, 5));
        }
        return null;
    }

    /** A message that is made visible earlier comes again. */
    private static Void hidden(Producer producer) throws Exception {
        producer.send(message("Normal", "hidden").setTag("hidden").build());
        try (SimpleConsumer consumer = consumer("Hidden", "Normal", new FilterExpression("hidden || b"))) {
            List<MessageView> found = List.of();
            while (found.isEmpty()) {
                found = consumer.receive(1, HIDDEN);
            }
            consumer.changeInvisibleDuration(found.get(0), Duration.ofSeconds(10));
            Report.line("hidden", "first", text(found.get(0)), "found", receive(consumer, 1));
        }
        return null;
    }

    private static Void selected(Producer producer) throws Exception {
        producer.send(message("Normal", "cold").addProperty("degrees", "3").build());
        producer.send(message("Normal", "warm").addProperty("degrees", "30").build());
        FilterExpression warm = new FilterExpression("degrees > 20", FilterExpressionType.SQL92);
        try (SimpleConsumer consumer = consumer("Selected", "Normal", warm)) {
            Report.line("selected", "found", receive(consumer, 1));
        }
        return null;
    }

    /** One message fails the first time. */
    private static Void pushed(Producer producer) throws Exception {
        Set<String> found = Collections.synchronizedSet(new TreeSet<>());
        CountDownLatch all = new CountDownLatch(4);
        PushConsumer consumer = patiently(PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(proxy)
            .setConsumerGroup("Pushed")
            .setSubscriptionExpressions(Map.of("Normal", new FilterExpression("pushed")))
            .setMessageListener(message -> {
                if (found.add(text(message))) {
                    all.countDown();
                }
                return text(message).equals("pushed-1#1")
                    ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            })
            ::build);
        for (int number = 0; number < 3; number++) {
            producer.send(message("Normal", "pushed-" + number).setTag("pushed").build());
        }
        all.await(ENOUGH_MS, TimeUnit.MILLISECONDS);
        Report.line("pushed", "found", List.copyOf(found));
        consumer.close();
        return null;
    }

    private static Void ordered(Producer producer) throws Exception {
        List<String> found = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch all = new CountDownLatch(6);
        PushConsumer consumer = patiently(PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(proxy)
            .setConsumerGroup("Ordered")
            .setSubscriptionExpressions(Map.of("Fifo", FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                found.add(text(message));
                all.countDown();
                return ConsumeResult.SUCCESS;
            })
            ::build);
        for (int number = 0; number < 6; number++) {
            producer.send(message("Fifo", "ordered-" + number).setMessageGroup("one").build());
        }
        all.await(ENOUGH_MS, TimeUnit.MILLISECONDS);
        Report.line("ordered", "found", List.copyOf(found));
        consumer.close();
        return null;
    }

    /** Two wait for their time, one of which is called back. */
    private static Void delayed(Producer producer) throws Exception {
        long due = System.currentTimeMillis() + DELAY_MS;
        SendReceipt recalled = producer.send(
            message("Delay", "recalled").setDeliveryTimestamp(due + ENOUGH_MS).build());
        producer.recallMessage("Delay", recalled.getRecallHandle());
        producer.send(message("Delay", "delayed").setDeliveryTimestamp(due).build());
        try (SimpleConsumer consumer = consumer("Delayed", "Delay", FilterExpression.SUB_ALL)) {
            List<String> found = receive(consumer, 1);
            Report.line("delayed", "found", found, "early", System.currentTimeMillis() < due);
        }
        return null;
    }

    private static Void transactions() throws Exception {
        CountDownLatch checked = new CountDownLatch(1);
        Producer producer = patiently(PROVIDER.newProducerBuilder()
            .setClientConfiguration(proxy)
            .setTopics("Trans")
            .setTransactionChecker(message -> {
                if (!text(message).startsWith("open")) { // its end is still on the way
                    return TransactionResolution.UNKNOWN;
                }
                checked.countDown();
                return TransactionResolution.COMMIT;
            })
            ::build);
        Transaction committed = producer.beginTransaction();
        producer.send(message("Trans", "committed").build(), committed);
        committed.commit();
        Transaction rolledBack = producer.beginTransaction();
        producer.send(message("Trans", "rolled back").build(), rolledBack);
        rolledBack.rollback();
        producer.send(message("Trans", "open").build(), producer.beginTransaction());
        try (SimpleConsumer consumer = consumer("Paid", "Trans", FilterExpression.SUB_ALL)) {
            Report.line("transactions", "found", receive(consumer, 2), "checked", checked.getCount() == 0);
        }
        producer.close();
        return null;
    }

    private static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder()
            .setTopic(topic).setTag("a").setKeys("k-" + body)
            .setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static SimpleConsumer consumer(String group, String topic, FilterExpression expression)
        throws Exception {
        return patiently(PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(proxy)
            .setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic, expression))
            ::build);
    }

    /** Starts a client. It gives a proxy 3 s to tell its settings, few on a busy machine. */
    private static <T> T patiently(Callable<T> start) throws Exception {
        long end = System.currentTimeMillis() + ENOUGH_MS;
        while (true) {
            try {
                return start.call();
            } catch (IllegalStateException | ClientException failure) {
                if (System.currentTimeMillis() > end) {
                    throw failure;
                }
            }
        }
    }

    /** Receives and acknowledges so many, or what comes until it is enough; sorted. */
    private static List<String> receive(SimpleConsumer consumer, int count) throws ClientException {
        Set<String> found = new TreeSet<>();
        long end = System.currentTimeMillis() + ENOUGH_MS;
        while (found.size() < count && System.currentTimeMillis() < end) {
            for (MessageView message : consumer.receive(16, HIDDEN)) {
                found.add(text(message));
                consumer.ack(message);
            }
        }
        return List.copyOf(found);
    }

    private static String text(MessageView message) {
        return StandardCharsets.UTF_8.decode(message.getBody().duplicate())
            + "#" + message.getDeliveryAttempt();
    }
}
