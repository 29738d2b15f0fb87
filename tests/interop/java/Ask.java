import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends --count requests and waits for the reply to each: event "replied", or "failed" with the
 * kind of error. Stays online until a line comes in.
 *
 * --namesrv A --topic T --group G --count N --ttl MS --sync (by the call that waits; that of client
 * 5.3.3 gives up as soon as its request is sent, whatever the broker does)
 */
public final class Ask {
    public static void main(String[] args) throws Exception {
        Report.begin();
        Orders orders = new Orders(args);
        DefaultMQProducer producer = new DefaultMQProducer(orders.text("group", "PG_ask"));
        producer.setSendMsgTimeout(Report.SEND_MS);
        producer.setNamesrvAddr(orders.text("namesrv"));
        producer.setMqClientApiTimeout(Report.SEND_MS);
        producer.start();
        Report.line("started", "client", producer.buildMQClientId());
        int ttl = orders.number("ttl", Report.SEND_MS);
        int count = orders.number("count", 1);
        CountDownLatch answers = new CountDownLatch(count);
        for (int at = 0; at < count; at++) {
            String key = "ask-" + at;
            Message message = new Message(orders.text("topic"), "", key,
                key.getBytes(StandardCharsets.UTF_8));
            if (!orders.flag("sync")) {
                producer.request(message, new RequestCallback() {
                    @Override
                    public void onSuccess(Message reply) {
                        replied(key, reply);
                        answers.countDown();
                    }

                    @Override
                    public void onException(Throwable e) {
                        failed(key, e);
                        answers.countDown();
                    }
                }, ttl);
                continue;
            }
            try {
                replied(key, producer.request(message, ttl));
            } catch (Exception e) {
                failed(key, e);
            }
            answers.countDown();
        }
        answers.await();
        Report.line("done", "count", count);
        Report.order();
        producer.shutdown();
        Runtime.getRuntime().halt(0);
    }

    private static void replied(String key, Message reply) {
        Report.line("replied", "key", key, "body",
            new String(reply.getBody(), StandardCharsets.UTF_8), "topic", reply.getTopic(),
            "type", reply.getProperty("MSG_TYPE"));
    }

    private static void failed(String key, Throwable e) {
        Report.line("failed", "key", key, "error", e.getClass().getSimpleName(),
            "reason", e.getMessage());
    }
}
