import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A member of a push-consumer group. Reports each message as it is consumed and, on the order
 * "queues", the queues it holds; on "stop" or the end of standard input it leaves its group.
 *
 * --namesrv A --topic T --group G --tags EXPR --from first|last --model clustering|broadcasting
 * --routes MS (how often it asks for routes)
 * --orderly --fail N (the first N deliveries ask for a later try) --trace, --traceTopic T
 * --pop (the broker decides who reads what, and how) --invisible MS
 */
public final class Consume {
    public static void main(String[] args) throws Exception {
        Report.begin();
        Orders orders = new Orders(args);
        String topic = orders.text("topic");
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(orders.text("group", "CG_interop"));
        consumer.setNamesrvAddr(orders.text("namesrv"));
        consumer.setMqClientApiTimeout(Report.SEND_MS);
        consumer.setConsumeFromWhere(orders.text("from", "first").equals("first")
            ? ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            : ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        // Its class moved with 5.0, so it is not named here.
        consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(),
            orders.text("model", "clustering").toUpperCase(Locale.ROOT)));
        consumer.setPollNameServerInterval(orders.number("routes", 30_000));
        consumer.subscribe(topic, orders.text("tags", "*"));
        Recent.ask(consumer, orders);
        AtomicInteger toFail = new AtomicInteger(orders.number("fail", 0));
        if (orders.flag("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(Consume::tell);
                return toFail.getAndDecrement() > 0
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                    : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(Consume::tell);
                return toFail.getAndDecrement() > 0
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        // What was told as a message has been counted as consumed when it leaves.
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
        consumer.start();
        CountDownLatch left = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.shutdown();
            left.countDown();
        }));
        Report.line("started", "client", consumer.buildMQClientId());
        String order;
        while ((order = Report.order()) != null && !order.equals("stop")) {
            if (order.equals("popping")) {
                Report.line("popping", "queues", Recent.popping(consumer));
            } else if (order.equals("queues")) {
                List<String> held = new ArrayList<>();
                for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl()
                    .getRebalanceImpl().getProcessQueueTable().keySet()) {
                    if (queue.getTopic().equals(topic)) {
                        held.add(queue.getBrokerName() + ":" + queue.getQueueId());
                    }
                }
                held.sort(null);
                Report.line("queues", "queues", held);
            } else {
                Report.line("unknown", "order", order,
                    "known", Arrays.asList("queues", "popping", "stop"));
            }
        }
        consumer.shutdown();
        Report.line("stopped");
        Runtime.getRuntime().halt(0);
    }

    private static void tell(MessageExt message) {
        Report.line("message", "key", message.getKeys(), "tag", message.getTags(),
            "body", new String(message.getBody(), StandardCharsets.UTF_8),
            "topic", message.getTopic(), "queue", message.getQueueId(),
            "offset", message.getQueueOffset(), "msgId", message.getMsgId(),
            "broker", message.getBrokerName(), "times", message.getReconsumeTimes(),
            "number", message.getUserProperty("number"),
            "order", message.getUserProperty("order"));
    }
}
