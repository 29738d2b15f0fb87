import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Sends a message with RocketMQ's own client; the broker may be RocketMQ's or ours. */
public class FirstMessage {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("shop");
        producer.setNamesrvAddr(args.length > 0 ? args[0] : "127.0.0.1:9876");
        producer.start();
        byte[] body = "12 EUR".getBytes(StandardCharsets.UTF_8);
        System.out.println(producer.send(new Message("orders", "paid", "o-1", body)));
        producer.shutdown();
    }
}
