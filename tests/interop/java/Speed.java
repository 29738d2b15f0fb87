import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * A producer or a push consumer as fast as it goes, for the benchmark: sends --count messages of 128
 * bytes with --in-flight of them under way, or has as many delivered in batches of 32. A fifth more
 * comes first, to warm up. Reports "rate" with the count, the seconds, and the processor time of a
 * message in us.
 *
 * --namesrv A --topic T --what send|receive --group G --count N --in-flight N
 */
public final class Speed {
    private static int total;
    private static int skip;
    private static final AtomicInteger SEEN = new AtomicInteger();
    private static final CountDownLatch DONE = new CountDownLatch(1);
    private static volatile long began;
    private static volatile long cpuBegan;

    public static void main(String[] args) throws Exception {
        Report.begin();
        Orders orders = new Orders(args);
        int count = orders.number("count", 100_000);
        total = count + count / 5;
        skip = total - count;
        if (orders.text("what").equals("send")) {
            send(orders);
        } else {
            receive(orders);
        }
        DONE.await();
        double seconds = (System.nanoTime() - began) / 1e9;
        double cpu = (cpuNanos() - cpuBegan) / 1e3 / count;
        Report.line("rate", "count", count, "seconds", seconds, "cpu_us", cpu);
        Runtime.getRuntime().halt(0);
    }

    private static void send(Orders orders) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("ClientLoad");
        producer.setNamesrvAddr(orders.text("namesrv"));
        producer.start();
        Semaphore room = new Semaphore(orders.number("in-flight", 256));
        AtomicReference<Throwable> wrong = new AtomicReference<>();
        byte[] body = new byte[128];
        for (int at = 0; at < total && wrong.get() == null; at++) {
            room.acquire();
            producer.send(new Message(orders.text("topic"), body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    room.release();
                    add(1);
                }

                @Override
                public void onException(Throwable e) {
                    wrong.set(e);
                    room.release();
                }
            });
        }
        if (wrong.get() != null) {
            throw new IllegalStateException(wrong.get());
        }
    }

    private static void receive(Orders orders) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(orders.text("group"));
        consumer.setNamesrvAddr(orders.text("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(orders.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            add(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static void add(int count) {
        int now = SEEN.addAndGet(count);
        if (now > skip && now - count <= skip) {
            began = System.nanoTime();
            cpuBegan = cpuNanos();
        }
        if (now >= total) {
            DONE.countDown();
        }
    }

    private static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean)
            java.lang.management.ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }
}
