import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Replies to each request of a topic with "re: " and its body, until a line comes in. Event
 * "answered", or "failed" with what the broker said.
 *
 * --namesrv A --topic T --group G
 */
public final class Answer {
    public static void main(String[] args) throws Exception {
        Report.begin();
        Orders orders = new Orders(args);
        DefaultMQProducer producer = new DefaultMQProducer("PG_answer");
        producer.setSendMsgTimeout(Report.SEND_MS);
        producer.setNamesrvAddr(orders.text("namesrv"));
        producer.setMqClientApiTimeout(Report.SEND_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(orders.text("group", "CG_answer"));
        consumer.setNamesrvAddr(orders.text("namesrv"));
        consumer.setMqClientApiTimeout(Report.SEND_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(orders.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                answer(producer, message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Report.line("started", "client", consumer.buildMQClientId());
        Report.order();
        consumer.shutdown();
        producer.shutdown();
        Runtime.getRuntime().halt(0);
    }

    private static void answer(DefaultMQProducer producer, MessageExt message) {
        String body = "re: " + new String(message.getBody(), StandardCharsets.UTF_8);
        try {
            SendResult result = producer.send(MessageUtil.createReplyMessage(message,
                body.getBytes(StandardCharsets.UTF_8)), Report.SEND_MS);
            Report.line("answered", "key", message.getKeys(), "status",
                result.getSendStatus().name(), "queue", result.getMessageQueue().getQueueId(),
                "topic", result.getMessageQueue().getTopic());
        } catch (Exception e) {
            Report.line("failed", "key", message.getKeys(), "reason", e.getMessage());
        }
    }
}
