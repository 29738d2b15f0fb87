import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.NotificationRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PollingInfoRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * The requests of pop, one for each line on standard input, made and read by the real client's own
 * code. The words of a line are separated by tabs; each answer is one report, "answer".
 *
 * pop GROUP TOPIC QUEUE MAX INVISIBLE POLL ORDER ATTEMPT TAGS, with "-" for no attempt
 * ack GROUP TOPIC HANDLE, batch GROUP TOPIC HANDLE..., change GROUP TOPIC HANDLE INVISIBLE
 * notify GROUP TOPIC QUEUE POLL ORDER, polling GROUP TOPIC QUEUE
 *
 * --namesrv ADDRESS --broker ADDRESS --name BROKER
 */
public final class Pop {
    private static final long WAIT_MS = 60_000;

    private final MQClientAPIImpl api;
    private final String broker;
    private final String name;

    private Pop(MQClientAPIImpl api, String broker, String name) {
        this.api = api;
        this.broker = broker;
        this.name = name;
    }

    public static void main(String[] args) throws Exception {
        Report.begin();
        Orders orders = new Orders(args);
        ClientConfig config = new ClientConfig();
        config.setNamesrvAddr(orders.text("namesrv"));
        config.setMqClientApiTimeout(Report.SEND_MS);
        config.setVipChannelEnabled(false);
        MQClientInstance client = MQClientManager.getInstance().getOrCreateMQClientInstance(config);
        client.start();
        Pop pop = new Pop(client.getMQClientAPIImpl(), orders.text("broker"), orders.text("name"));
        Report.line("started");
        String order;
        while ((order = Report.order()) != null) {
            Map<String, Object> found = new LinkedHashMap<>();
            try {
                found = pop.answer(order.split("\t"));
            } catch (Exception e) {
                Throwable cause = e.getCause() == null ? e : e.getCause();
                found.put("failed", cause.getClass().getSimpleName());
                found.put("why", String.valueOf(cause.getMessage()));
            }
            Report.line("answer", "found", found);
        }
        Runtime.getRuntime().halt(0);
    }

    private Map<String, Object> answer(String[] words) throws Exception {
        switch (words[0]) {
            case "pop":
                return pop(words);
            case "ack":
                return ack(words);
            case "batch":
                return batch(words);
            case "change":
                return change(words);
            case "notify":
                return notify(words);
            case "polling":
                return polling(words);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private Map<String, Object> pop(String[] words) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(words[1]);
        header.setTopic(words[2]);
        header.setQueueId(Integer.parseInt(words[3]));
        header.setMaxMsgNums(Integer.parseInt(words[4]));
        header.setInvisibleTime(Long.parseLong(words[5]));
        header.setPollTime(Long.parseLong(words[6]));
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setOrder(Boolean.parseBoolean(words[7]));
        header.setAttemptId(words[8].equals("-") ? null : words[8]);
        header.setExpType("TAG");
        header.setExp(words[9]);
        CompletableFuture<PopResult> done = new CompletableFuture<>();
        api.popMessageAsync(name, broker, header, WAIT_MS, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                done.complete(result);
            }

            @Override
            public void onException(Throwable e) {
                done.completeExceptionally(e);
            }
        });
        PopResult result = done.get(WAIT_MS, TimeUnit.MILLISECONDS);
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("status", result.getPopStatus().name());
        found.put("rest", result.getRestNum());
        found.put("messages", messages(result.getMsgFoundList()));
        return found;
    }

    private static List<Map<String, Object>> messages(List<MessageExt> messages) {
        List<Map<String, Object>> all = new ArrayList<>();
        for (MessageExt message : messages == null ? List.<MessageExt>of() : messages) {
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
            one.put("topic", message.getTopic());
            one.put("queue", message.getQueueId());
            one.put("offset", message.getQueueOffset());
            one.put("times", message.getReconsumeTimes());
            one.put("flag", message.getFlag());
            one.put("handle", message.getProperty(MessageConst.PROPERTY_POP_CK));
            one.put("properties", new TreeMap<>(message.getProperties()));
            all.add(one);
        }
        return all;
    }

    private Map<String, Object> ack(String[] words) throws Exception {
        String[] parts = ExtraInfoUtil.split(words[3]);
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(words[1]);
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, words[2], words[1]));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setExtraInfo(words[3]);
        Acked acked = new Acked();
        api.ackMessageAsync(broker, WAIT_MS, acked, header);
        return acked.found();
    }

    private Map<String, Object> batch(String[] words) throws Exception {
        List<String> handles = Arrays.asList(words).subList(3, words.length);
        Acked acked = new Acked();
        api.batchAckMessageAsync(broker, WAIT_MS, acked, words[2], words[1], handles);
        return acked.found();
    }

    private Map<String, Object> change(String[] words) throws Exception {
        String[] parts = ExtraInfoUtil.split(words[3]);
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setConsumerGroup(words[1]);
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, words[2], words[1]));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setExtraInfo(words[3]);
        header.setInvisibleTime(Long.parseLong(words[4]));
        Acked acked = new Acked();
        api.changeInvisibleTimeAsync(name, broker, header, WAIT_MS, acked);
        return acked.found();
    }

    private Map<String, Object> notify(String[] words) throws Exception {
        NotificationRequestHeader header = new NotificationRequestHeader();
        header.setConsumerGroup(words[1]);
        header.setTopic(words[2]);
        header.setQueueId(Integer.parseInt(words[3]));
        header.setPollTime(Long.parseLong(words[4]));
        header.setBornTime(System.currentTimeMillis());
        header.setOrder(Boolean.parseBoolean(words[5]));
        return ask(RemotingCommand.createRequestCommand(RequestCode.NOTIFICATION, header));
    }

    private Map<String, Object> polling(String[] words) throws Exception {
        PollingInfoRequestHeader header = new PollingInfoRequestHeader();
        header.setConsumerGroup(words[1]);
        header.setTopic(words[2]);
        header.setQueueId(Integer.parseInt(words[3]));
        return ask(RemotingCommand.createRequestCommand(RequestCode.POLLING_INFO, header));
    }

    private Map<String, Object> ask(RemotingCommand request) throws Exception {
        RemotingCommand answer = api.getRemotingClient().invokeSync(broker, request, WAIT_MS);
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("code", answer.getCode());
        found.put("fields", new TreeMap<>(answer.getExtFields()));
        return found;
    }

    /** The answer of an acknowledgement or a change. */
    private static final class Acked implements AckCallback {
        private final CompletableFuture<AckResult> done = new CompletableFuture<>();

        @Override
        public void onSuccess(AckResult result) {
            done.complete(result);
        }

        @Override
        public void onException(Throwable e) {
            done.completeExceptionally(e);
        }

        Map<String, Object> found() throws Exception {
            AckResult result = done.get(WAIT_MS, TimeUnit.MILLISECONDS);
            Map<String, Object> found = new LinkedHashMap<>();
            found.put("status", result.getStatus().name());
            found.put("handle", result.getExtraInfo());
            return found;
        }
    }
}
