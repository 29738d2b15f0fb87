import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import com.alibaba.fastjson2.JSON;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.proxy.config.ConfigurationManager;
import org.apache.rocketmq.proxy.grpc.interceptor.ContextInterceptor;
import org.apache.rocketmq.proxy.grpc.interceptor.GlobalExceptionInterceptor;
import org.apache.rocketmq.proxy.grpc.interceptor.HeaderInterceptor;
import org.apache.rocketmq.proxy.grpc.v2.GrpcMessagingApplication;
import org.apache.rocketmq.proxy.processor.DefaultMessagingProcessor;

/**
 * RocketMQ's proxy before the brokers of a name server, for the clients that speak gRPC. It is made
 * of the parts that its own start-up class takes, because that one listens on every address.
 *
 * --namesrv A --cluster NAME --port N [--broker FILE]
 *
 * With the properties file of a broker it is in local mode: the broker is in its process.
 */
public final class Proxy {
    private Proxy() {
    }

    public static void main(String[] words) throws Exception {
        Report.begin();
        Orders orders = new Orders(words);
        int port = Integer.parseInt(orders.text("port"));
        String brokerFile = orders.text("broker", null);
        Path settings = Path.of("rmq-proxy.json").toAbsolutePath();
        Files.writeString(settings, JSON.toJSONString(Map.of(
            "rocketMQClusterName", orders.text("cluster"),
            "namesrvAddr", orders.text("namesrv"),
            "proxyMode", brokerFile == null ? "CLUSTER" : "LOCAL",
            "grpcServerPort", port)));
        System.setProperty("com.rocketmq.proxy.configPath", settings.toString());
        System.setProperty("rocketmq.namesrv.addr", orders.text("namesrv"));
        ConfigurationManager.initEnv();
        ConfigurationManager.intConfig();
        BrokerController broker = brokerFile == null ? null
            : BrokerStartup.createBrokerController(new String[] {"-c", brokerFile});
        DefaultMessagingProcessor processor = broker == null
            ? DefaultMessagingProcessor.createForClusterMode()
            : DefaultMessagingProcessor.createForLocalMode(broker);
        GrpcMessagingApplication application = GrpcMessagingApplication.create(processor);
        if (broker != null) {
            BrokerStartup.start(broker);
        }
        application.start();
        processor.start();
        NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", port))
            .addService(application)
            .intercept(new GlobalExceptionInterceptor())
            .intercept(new ContextInterceptor())
            .intercept(new HeaderInterceptor())
            .build()
            .start();
        Report.line("started");
    }
}
