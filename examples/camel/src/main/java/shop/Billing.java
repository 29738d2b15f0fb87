package shop;

import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.main.Main;

public class Billing extends RouteBuilder {
    private static final String CLUSTER = "namesrvAddr={{env:NAMESRV_ADDR:127.0.0.1:9876}}";

    public static void main(String[] args) throws Exception {
        Main main = new Main();
        main.configure().addRoutesBuilder(new Billing());
        main.run(args);
    }

    @Override
    public void configure() {
        from("rocketmq:orders?consumerGroup=billing&subscribeTags=paid&" + CLUSTER)
                .process(order -> System.out.println("billed " + order.getMessage().getBody(String.class)));

        from("timer:once?repeatCount=1")
                .setBody(constant("12 EUR"))
                .setHeader("CamelRockerMQOverrideMessageKey", constant("o-1"))
                .to("rocketmq:orders?producerGroup=shop&sendTag=paid&waitForSendResult=true&" + CLUSTER)
                .process(order -> System.out.println("sent"));
    }
}
