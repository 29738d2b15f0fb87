import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

public class FirstMessage {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("shop");
        producer.setNamesrvAddr(args.length > 0 ? args[0] : "127.0.0.1:9876");
        producer.start();
        System.out.println(producer.send(new Message("orders", "paid", "o-1", "12 EUR".getBytes())));
        producer.shutdown();
    }
}
