import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer of transactions: sends --count of them and answers the broker's checks until a line
 * comes in. Reports "sent" with what its own part said, and "checked" for each check.
 *
 * --namesrv A --topic T --group G --count N --prefix P (key and body are P-number)
 * --plan W,W (in turn): commit, rollback: its own part says so at once. unknown-commit,
 * unknown-rollback: it can't say, and says so when it is checked. unknown-unknown: never.
 */
public final class Transact {
    public static void main(String[] args) throws Exception {
        Report.begin();
        Orders orders = new Orders(args);
        TransactionMQProducer producer = new TransactionMQProducer(orders.text("group"));
        producer.setSendMsgTimeout(Report.SEND_MS);
        producer.setNamesrvAddr(orders.text("namesrv"));
        producer.setMqClientApiTimeout(Report.SEND_MS);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
                return state(message.getUserProperty("plan").split("-")[0]);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String[] plan = message.getUserProperty("plan").split("-");
                Report.line("checked", "key", message.getKeys(), "answer", plan[plan.length - 1],
                    "topic", message.getTopic(), "body",
                    new String(message.getBody(), StandardCharsets.UTF_8), "times",
                    message.getProperty(MessageConst.PROPERTY_TRANSACTION_CHECK_TIMES));
                return state(plan[plan.length - 1]);
            }
        });
        producer.start();
        Report.line("started", "client", producer.buildMQClientId());
        List<String> plans = orders.list("plan");
        int count = orders.number("count", 0);
        for (int at = 0; at < count; at++) {
            String key = orders.text("prefix", "t") + "-" + at;
            Message message = new Message(orders.text("topic"), "", key,
                key.getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("plan", plans.get(at % plans.size()));
            TransactionSendResult result = producer.sendMessageInTransaction(message, null);
            Report.line("sent", "key", key, "status", result.getSendStatus().name(),
                "state", result.getLocalTransactionState().name(), "msgId", result.getMsgId(),
                "transactionId", result.getTransactionId());
        }
        Report.line("done", "count", count, "failed", 0);
        Report.order();
        producer.shutdown();
        Runtime.getRuntime().halt(0);
    }

    private static LocalTransactionState state(String word) {
        switch (word) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }
}
