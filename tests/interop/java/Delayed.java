import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer of messages that wait, and a consumer of them, in one. Orders on standard input:
 * "level N KEY", "seconds N KEY", "ms N KEY", "at MS KEY", "now KEY", "recall HANDLE", "stop".
 * Reports each answer, each refusal, and each delivery with its properties.
 *
 * --namesrv A --topic T --group G --orderly --most N (maxReconsumeTimes) --batch N
 * --fail N (how many tries of each message fail) --good N (of a batch, so many are done)
 */
public final class Delayed {
    private static String topic;
    private static int fail;

    public static void main(String[] args) throws Exception {
        Report.begin();
        Orders orders = new Orders(args);
        topic = orders.text("topic");
        fail = orders.number("fail", 0);
        int good = orders.number("good", 0);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(orders.text("group"));
        consumer.setNamesrvAddr(orders.text("namesrv"));
        consumer.setMqClientApiTimeout(Report.SEND_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(orders.number("most", -1));
        consumer.setConsumeMessageBatchMaxSize(orders.number("batch", 1));
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.subscribe(topic, "*");
        if (orders.flag("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(Delayed::tell);
                return fails(messages.get(0)) ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                    : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(Delayed::tell);
                if (good > 0 && messages.size() > good) {
                    context.setAckIndex(good - 1);
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                }
                return fails(messages.get(0)) ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        DefaultMQProducer producer = new DefaultMQProducer(orders.text("group") + "_producer");
        producer.setSendMsgTimeout(Report.SEND_MS);
        producer.setNamesrvAddr(orders.text("namesrv"));
        producer.setMqClientApiTimeout(Report.SEND_MS);
        producer.start();
        consumer.start();
        Report.line("started");
        String order;
        while ((order = Report.order()) != null && !order.equals("stop")) {
            String[] words = order.split(" ");
            try {
                obey(producer, words);
            } catch (Exception wrong) {
                Report.line("refused", "order", order, "why", wrong.getMessage());
            }
        }
        consumer.shutdown();
        producer.shutdown();
        Report.line("stopped");
        Runtime.getRuntime().halt(0);
    }

    private static void obey(DefaultMQProducer producer, String[] words) throws Exception {
        if (words[0].equals("recall")) {
            Report.line("recalled", "id", producer.recallMessage(topic, words[1]));
            return;
        }
        String key = words[words.length - 1];
        Message message = new Message(topic, "tag", key, key.getBytes(StandardCharsets.UTF_8));
        switch (words[0]) {
            case "level":
                message.setDelayTimeLevel(Integer.parseInt(words[1]));
                break;
            case "seconds":
                message.setDelayTimeSec(Long.parseLong(words[1]));
                break;
            case "ms":
                message.setDelayTimeMs(Long.parseLong(words[1]));
                break;
            case "at":
                message.setDeliverTimeMs(Long.parseLong(words[1]));
                break;
            default:
                break;
        }
        long before = System.currentTimeMillis();
        SendResult sent = producer.send(message);
        Report.line("sent", "key", key, "before", before, "after", System.currentTimeMillis(),
            "status", sent.getSendStatus().name(), "handle", sent.getRecallHandle(),
            "id", sent.getMsgId());
    }

    private static boolean fails(MessageExt message) {
        return message.getReconsumeTimes() < fail;
    }

    private static void tell(MessageExt message) {
        Report.line("message", "key", message.getKeys(), "topic", message.getTopic(),
            "at", System.currentTimeMillis(), "stored", message.getStoreTimestamp(),
            "times", message.getReconsumeTimes(), "id", message.getMsgId(),
            "properties", message.getProperties());
    }
}
