import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.namesrv.NamesrvStartup;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Loads the classes that the other programs use, for an archive that they share: name server and
 * broker, a message that is sent and consumed, mqadmin. Prints nothing.
 *
 * ADDRESS (of the name server) NAMESRV BROKER (their properties files)
 */
public final class Training {
    private static final String TOPIC = "Training";

    public static void main(String[] args) throws Exception {
        Report.begin();
        String address = args[0];
        NamesrvStartup.main0(new String[] {"-c", args[1]});
        BrokerStartup.start(BrokerStartup.createBrokerController(new String[] {"-c", args[2]}));
        DefaultMQProducer producer = new DefaultMQProducer("PG_training");
        producer.setNamesrvAddr(address);
        producer.setMqClientApiTimeout(Report.SEND_MS);
        producer.start();
        producer.send(new Message(TOPIC, new byte[1]), Report.SEND_MS);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("CG_training");
        consumer.setNamesrvAddr(address);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        CountDownLatch consumed = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            consumed.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumed.await();
        for (String command : List.of("clusterList", "topicList", "consumerProgress")) {
            MQAdminStartup.main0(new String[] {command, "-n", address}, null);
        }
        Runtime.getRuntime().halt(0);
    }
}
