import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/** Send a message and receive it, with rocketmq-client-java through `aerobee up --grpc`. */
public class FirstMessage {
    public static void main(String[] args) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
            .setEndpoints(args.length > 0 ? args[0] : "127.0.0.1:8081").enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(30)).build();
        try (Producer producer = provider.newProducerBuilder()
                .setClientConfiguration(configuration).setTopics("orders").build()) {
            System.out.println("sent " + producer.send(
                provider.newMessageBuilder().setTopic("orders").setBody("12 EUR".getBytes()).build()).getMessageId());
        }
        try (SimpleConsumer consumer = provider.newSimpleConsumerBuilder()
                .setClientConfiguration(configuration).setConsumerGroup("billing")
                .setSubscriptionExpressions(Map.of("orders", FilterExpression.SUB_ALL))
                .setAwaitDuration(Duration.ofSeconds(5)).build()) {
            List<MessageView> received;
            do {
                received = consumer.receive(16, Duration.ofSeconds(30));
            } while (received.isEmpty());
            for (MessageView message : received) {
                byte[] body = new byte[message.getBody().remaining()];
                message.getBody().get(body);
                System.out.println("received " + new String(body));
                consumer.ack(message);
            }
        }
        System.exit(0);
    }
}
