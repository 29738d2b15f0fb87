import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends --count messages with properties to --topic, then reads them by message selectors. Each
 * order is a line of words with tabs between them; each is answered by an event "selected" with the
 * sorted keys of what was found, or with an error.
 *
 * pull KIND EXPR: all queues from their start to their end, by a pull consumer
 * push KIND EXPR GROUP COUNT, lite KIND EXPR GROUP COUNT: by a push or a lite pull consumer, until
 * it has so many messages and then none for a second
 *
 * --namesrv A --topic T --count N
 */
public final class Select {
    private static final long ENOUGH_MS = 40_000;
    private static final long QUIET_MS = 1_000;
    private static String namesrv;
    private static String topic;

    public static void main(String[] args) throws Exception {
        Report.begin();
        Orders orders = new Orders(args);
        namesrv = orders.text("namesrv");
        topic = orders.text("topic");
        DefaultMQProducer producer = new DefaultMQProducer("PG_select");
        producer.setSendMsgTimeout(Report.SEND_MS);
        producer.setNamesrvAddr(namesrv);
        producer.setMqClientApiTimeout(Report.SEND_MS);
        producer.start();
        for (int number = 0; number < orders.number("count", 1); number++) {
            producer.send(message(number));
        }
        DefaultMQPullConsumer puller = new DefaultMQPullConsumer("PCG_select");
        puller.setNamesrvAddr(namesrv);
        puller.setMqClientApiTimeout(Report.SEND_MS);
        puller.start();
        // A broker's answer to a heartbeat tells its version, without which there are no expressions.
        MQClientInstance client =
            puller.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
        client.updateTopicRouteInfoFromNameServer(topic);
        while (!client.sendHeartbeatToAllBrokerWithLock()) {
            Thread.sleep(50);
        }
        Report.line("started");
        String line;
        while ((line = Report.order()) != null) {
            String[] words = line.split("\t", -1);
            MessageSelector selector = words[1].equals("TAG")
                ? MessageSelector.byTag(words[2]) : MessageSelector.bySql(words[2]);
            try {
                Set<String> keys = words[0].equals("pull") ? pull(puller, selector)
                    : words[0].equals("push") ? push(selector, words[3], words[4])
                    : lite(selector, words[3], words[4]);
                Report.line("selected", "keys", keys, "error", "");
            } catch (Exception e) {
                Report.line("selected", "keys", new String[0], "error", reasons(e));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static Message message(int number) {
        String name = String.format("m-%03d", number);
        String tag = List.of("Aa", "BB", "other").get(number % 3); // Aa and BB have one hash code
        Message message = new Message(topic, tag, name, name.getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("a", Integer.toString(number % 7));
        message.putUserProperty("big", Long.toString(3_000_000_000L + number));
        message.putUserProperty("price", Double.toString(number * 1.5));
        message.putUserProperty("flag", Boolean.toString(number % 2 == 0));
        message.putUserProperty("city", List.of("Hang zhou", "it's", "Köln").get(number % 3));
        if (number % 5 == 0) {
            message.putUserProperty("rare", "yes");
        }
        return message;
    }

    private static Set<String> pull(DefaultMQPullConsumer puller, MessageSelector selector)
        throws Exception {
        Set<String> keys = new TreeSet<>();
        for (MessageQueue queue : puller.fetchSubscribeMessageQueues(topic)) {
            long offset = puller.minOffset(queue);
            while (offset < puller.maxOffset(queue)) {
                PullResult result = puller.pull(queue, selector, offset, 32);
                if (result.getMsgFoundList() != null) {
                    result.getMsgFoundList().forEach(found -> keys.add(found.getKeys()));
                }
                if (result.getNextBeginOffset() <= offset) {
                    throw new IllegalStateException("stuck at " + offset + ": " + result);
                }
                offset = result.getNextBeginOffset();
            }
        }
        return keys;
    }

    private static Set<String> push(MessageSelector selector, String group, String count)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(Report.SEND_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, selector);
        Set<String> keys = new ConcurrentSkipListSet<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(found -> keys.add(found.getKeys()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        try {
            consumer.start();
            long end = System.currentTimeMillis() + ENOUGH_MS;
            while (keys.size() < Integer.parseInt(count) && System.currentTimeMillis() < end) {
                Thread.sleep(50);
            }
            Thread.sleep(QUIET_MS);
        } finally {
            consumer.shutdown();
        }
        return keys;
    }

    private static Set<String> lite(MessageSelector selector, String group, String count)
        throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(Report.SEND_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, selector);
        Set<String> keys = new TreeSet<>();
        try {
            consumer.start();
            long end = System.currentTimeMillis() + ENOUGH_MS;
            boolean quiet = false;
            while (!quiet && System.currentTimeMillis() < end) {
                List<MessageExt> found = consumer.poll(QUIET_MS);
                found.forEach(message -> keys.add(message.getKeys()));
                quiet = found.isEmpty() && keys.size() >= Integer.parseInt(count);
            }
        } finally {
            consumer.shutdown();
        }
        return keys;
    }

    private static String reasons(Throwable thrown) {
        StringBuilder text = new StringBuilder();
        for (Throwable one = thrown; one != null; one = one.getCause()) {
            text.append(one).append('\n');
        }
        return text.toString();
    }
}
