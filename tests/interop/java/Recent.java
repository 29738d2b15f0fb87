import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What only recent clients can. Programs that older clients run as well ask for it here alone; the
 * class of this name in ../older takes its place with them.
 */
final class Recent {
    private Recent() {
    }

    /** --trace, --traceTopic T of a producer. */
    static void trace(DefaultMQProducer producer, Orders orders) {
        producer.setEnableTrace(orders.flag("trace"));
        producer.setTraceTopic(orders.text("traceTopic", null));
    }

    /** --trace, --traceTopic T, --pop and --invisible MS of a consumer. */
    static void ask(DefaultMQPushConsumer consumer, Orders orders) {
        consumer.setEnableTrace(orders.flag("trace"));
        consumer.setTraceTopic(orders.text("traceTopic", null));
        if (orders.flag("pop")) {
            consumer.setClientRebalance(false);
            consumer.setPopInvisibleTime(orders.number("invisible", 60_000));
        }
    }

    /** The queues that a consumer pops from. */
    static List<String> popping(DefaultMQPushConsumer consumer) {
        List<String> popped = new ArrayList<>();
        for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
            .getPopProcessQueueTable().keySet()) {
            popped.add(queue.getTopic() + ":" + queue.getQueueId());
        }
        popped.sort(null);
        return popped;
    }
}
