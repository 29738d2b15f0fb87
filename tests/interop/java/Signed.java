import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * A producer and a consumer that sign as --user with --secret, at --namesrv, in --group. Orders:
 * "send TOPIC KEY" is "answered" with a code and a text, "consume TOPIC" starts the consumer, which
 * reports each "message".
 */
public final class Signed {
    private static final int SEND_MS = 20_000;

    public static void main(String[] args) throws Exception {
        Report.begin();
        Orders orders = new Orders(args);
        RPCHook hook = new AclClientRPCHook(
            new SessionCredentials(orders.text("user"), orders.text("secret")));
        DefaultMQProducer producer = new DefaultMQProducer("PG_signed", hook);
        producer.setNamesrvAddr(orders.text("namesrv"));
        producer.setMqClientApiTimeout(Report.SEND_MS);
        producer.setSendMsgTimeout(SEND_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        Report.line("started");
        String order;
        while ((order = Report.order()) != null) {
            String[] words = order.split(" ");
            if (words[0].equals("send")) {
                send(producer, words[1], words[2]);
            } else {
                consume(orders, hook, words[1]);
                Report.line("consuming");
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void send(DefaultMQProducer producer, String topic, String key)
        throws Exception {
        byte[] body = key.getBytes(StandardCharsets.UTF_8);
        try {
            producer.send(new Message(topic, "", key, body));
            Report.line("answered", "key", key, "code", 0, "text", "");
        } catch (MQClientException e) {
            if (!(e.getCause() instanceof MQBrokerException)) {
                throw e;
            }
            MQBrokerException cause = (MQBrokerException) e.getCause();
            Report.line("answered", "key", key, "code", cause.getResponseCode(),
                "text", cause.getErrorMessage());
        }
    }

    private static void consume(Orders orders, RPCHook hook, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(orders.text("group"), hook);
        consumer.setNamesrvAddr(orders.text("namesrv"));
        consumer.setMqClientApiTimeout(Report.SEND_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> Report.line("message", "key", message.getKeys()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }
}
