package shop;

import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.apache.rocketmq.spring.support.RocketMQHeaders;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.messaging.support.MessageBuilder;
import org.springframework.stereotype.Component;

@SpringBootApplication
public class Billing {
    public static void main(String[] args) {
        SpringApplication.run(Billing.class, args);
    }

    @Bean
    CommandLineRunner sender(RocketMQTemplate template) {
        return args -> {
            var order = MessageBuilder.withPayload("12 EUR").setHeader(RocketMQHeaders.KEYS, "o-1").build();
            System.out.println("sent " + template.syncSend("orders:paid", order).getSendStatus());
        };
    }

    @Component
    @RocketMQMessageListener(topic = "orders", selectorExpression = "paid", consumerGroup = "billing")
    static class Listener implements RocketMQListener<String> {
        @Override
        public void onMessage(String body) {
            System.out.println("billed " + body);
        }
    }
}
