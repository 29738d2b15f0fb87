import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** Older clients can't do what the class of this name in ../java asks for: they say so. */
final class Recent {
    private Recent() {
    }

    static void trace(DefaultMQProducer producer, Orders orders) {
        refuse(orders, "trace");
    }

    static void ask(DefaultMQPushConsumer consumer, Orders orders) {
        refuse(orders, "trace");
        refuse(orders, "pop");
    }

    static List<String> popping(DefaultMQPushConsumer consumer) {
        return Collections.emptyList();
    }

    private static void refuse(Orders orders, String name) {
        if (orders.flag(name)) {
            throw new IllegalArgumentException("--" + name + " needs a client of 5.3 or newer");
        }
    }
}
