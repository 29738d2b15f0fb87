import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A lite pull consumer: polls until it has --count messages or --seconds have passed, reports each
 * message, commits and leaves.
 *
 * --namesrv A --topic T --group G --tags EXPR --count N --seconds S
 */
public final class PullConsume {
    public static void main(String[] args) throws Exception {
        Report.begin();
        Orders orders = new Orders(args);
        DefaultLitePullConsumer consumer =
            new DefaultLitePullConsumer(orders.text("group", "LG_interop"));
        consumer.setNamesrvAddr(orders.text("namesrv"));
        consumer.setMqClientApiTimeout(Report.SEND_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(orders.text("topic"), orders.text("tags", "*"));
        consumer.start();
        Report.line("started");
        int wanted = orders.number("count", 1);
        long end = System.nanoTime() + orders.number("seconds", 20) * 1_000_000_000L;
        int got = 0;
        while (got < wanted && System.nanoTime() < end) {
            List<MessageExt> messages = consumer.poll(1000);
            for (MessageExt message : messages) {
                Report.line("message", "key", message.getKeys(), "tag", message.getTags(),
                    "body", new String(message.getBody(), StandardCharsets.UTF_8),
                    "queue", message.getQueueId(), "offset", message.getQueueOffset());
            }
            got += messages.size();
        }
        consumer.commitSync();
        consumer.shutdown();
        Report.line("done", "count", got);
        Runtime.getRuntime().halt(got >= wanted ? 0 : 1);
    }
}
