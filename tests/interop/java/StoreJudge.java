import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import com.alibaba.fastjson2.JSONWriter;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * The real store opens a directory, puts the messages of a plan into it, and tells all that it sees.
 *
 * --dir DIR, --settings FILE and --out FILE (JSON). The settings name the sizes of files, flush mode
 * and options; "plan" is a list of messages to put first, "keys" a list of "topic#key" to look up.
 * Then it waits for any line of input to stop cleanly; until then the store is open.
 */
public final class StoreJudge {
    private static final int BLANK = 0xCBD43194;
    private static final int SYS_FLAG_AT = 36;
    private static final int MESSAGES_MAX = 64;

    private final DefaultMessageStore store;
    private final int logFileSize;

    private StoreJudge(String dir, JSONObject settings) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(dir);
        config.setStorePathCommitLog(dir + "/commitlog");
        logFileSize = settings.getIntValue("mappedFileSizeCommitLog");
        config.setMappedFileSizeCommitLog(logFileSize);
        config.setMappedFileSizeConsumeQueue(settings.getIntValue("mappedFileSizeConsumeQueue"));
        config.setMaxHashSlotNum(settings.getIntValue("maxHashSlotNum"));
        config.setMaxIndexNum(settings.getIntValue("maxIndexNum"));
        config.setEnabledAppendPropCRC(settings.getBooleanValue("enabledAppendPropCRC"));
        config.setForceVerifyPropCRC(settings.getBooleanValue("enabledAppendPropCRC"));
        config.setFlushDiskType(settings.getBooleanValue("sync")
            ? FlushDiskType.SYNC_FLUSH : FlushDiskType.ASYNC_FLUSH);
        config.setHaListenPort(0);
        config.setEnableCompaction(false);
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerName("judge");
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        store = new DefaultMessageStore(
            config, new BrokerStatsManager("judge", false), null, broker, topics);
        if (!store.load()) {
            throw new IllegalStateException("the store did not load");
        }
        store.start();
    }

    /** Puts each message of the plan; its place, its queue offset and its time of storing. */
    private List<List<Long>> put(JSONArray plan) throws Exception {
        List<List<Long>> places = new ArrayList<>();
        for (int at = 0; at < plan.size(); at++) {
            JSONObject wanted = plan.getJSONObject(at);
            MessageExtBrokerInner message = wanted.getBooleanValue("batch")
                ? new MessageExtBatch() : new MessageExtBrokerInner();
            String properties = wanted.getString("properties");
            message.setTopic(wanted.getString("topic"));
            message.setQueueId(wanted.getIntValue("queue"));
            message.setFlag(wanted.getIntValue("flag"));
            message.setSysFlag(wanted.getIntValue("sysFlag"));
            message.setBornTimestamp(wanted.getLongValue("born"));
            message.setBornHost(host(wanted.getString("bornHost")));
            message.setStoreHost(host(wanted.getString("storeHost")));
            message.setReconsumeTimes(wanted.getIntValue("reconsumeTimes"));
            message.setPreparedTransactionOffset(wanted.getLongValue("prepared"));
            message.setBody(bytes(wanted.getString("body")));
            MessageAccessor.setProperties(message,
                MessageDecoder.string2messageProperties(properties));
            message.setPropertiesString(properties);
            PutMessageResult result = wanted.getBooleanValue("batch")
                ? store.putMessages((MessageExtBatch) message) : store.putMessage(message);
            if (!result.isOk()) {
                throw new IllegalStateException(at + ": " + result.getPutMessageStatus());
            }
            places.add(Arrays.asList(
                result.getAppendMessageResult().getWroteOffset(),
                result.getAppendMessageResult().getLogicsOffset(),
                result.getAppendMessageResult().getStoreTimestamp()));
            Thread.sleep(2); // times that differ, for the search by time
        }
        return places;
    }

    private void waitForQueues() throws InterruptedException {
        for (int times = 0; store.dispatchBehindBytes() != 0; times++) {
            if (times > 1000) {
                throw new IllegalStateException("the queues did not catch up");
            }
            Thread.sleep(10);
        }
    }

    /** Every record of the log in order, as bytes and as the message that consumers get. */
    private List<Object> messages() throws Exception {
        List<Object> found = new ArrayList<>();
        long place = store.getMinPhyOffset();
        while (place < store.getMaxPhyOffset()) {
            SelectMappedBufferResult head = store.selectOneMessageByOffset(place, 8);
            int size = head.getByteBuffer().getInt(0);
            int magic = head.getByteBuffer().getInt(4);
            head.release();
            if (magic == BLANK) {
                place += size;
                continue;
            }
            SelectMappedBufferResult record = store.selectOneMessageByOffset(place, size);
            byte[] data = new byte[size];
            record.getByteBuffer().get(data);
            record.release();
            MessageExt message = MessageDecoder.decode(ByteBuffer.wrap(data)); // body unpacked
            byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("place", place);
            fields.put("sha1", hex(MessageDigest.getInstance("SHA-1").digest(data)));
            fields.put("id", message.getMsgId());
            fields.put("topic", message.getTopic());
            fields.put("queue", message.getQueueId());
            fields.put("offset", message.getQueueOffset());
            fields.put("flag", message.getFlag());
            fields.put("sysFlag", ByteBuffer.wrap(data).getInt(SYS_FLAG_AT)); // as it is stored
            fields.put("born", message.getBornTimestamp());
            fields.put("bornHost", hex(message.getBornHostBytes().array()));
            fields.put("stored", message.getStoreTimestamp());
            fields.put("storeHost", hex(message.getStoreHostBytes().array()));
            fields.put("reconsumeTimes", message.getReconsumeTimes());
            fields.put("prepared", message.getPreparedTransactionOffset());
            fields.put("body", hex(MessageDigest.getInstance("SHA-1").digest(body)));
            Map<String, String> properties = message.getProperties(); // null when there are none
            fields.put("properties", properties == null ? new TreeMap<>() : properties);
            found.add(fields);
            place += size;
        }
        return found;
    }

    private Map<String, Object> queues() {
        Map<String, Object> found = new TreeMap<>();
        store.getConsumeQueueTable().forEach((topic, queues) -> queues.forEach((id, queue) -> {
            List<Object> entries = new ArrayList<>();
            long least = queue.getMinOffsetInQueue();
            long end = queue.getMaxOffsetInQueue();
            for (long offset = least; offset < end; offset++) {
                CqUnit unit = queue.get(offset);
                entries.add(Arrays.asList(unit.getPos(), unit.getSize(), unit.getTagsCode()));
            }
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("min", least);
            fields.put("max", end);
            fields.put("entries", entries);
            fields.put("earliest", store.getEarliestMessageTime(topic, id));
            fields.put("times", times(topic, id, queue));
            found.put(topic + "@" + id, fields);
        }));
        return found;
    }

    /** For moments at, before and behind every third message: the offsets of both boundaries. */
    private List<Object> times(String topic, int id, ConsumeQueueInterface queue) {
        List<Object> found = new ArrayList<>();
        for (long at = queue.getMinOffsetInQueue(); at < queue.getMaxOffsetInQueue(); at += 3) {
            long stored = store.getMessageStoreTimeStamp(topic, id, at);
            for (long moment = stored - 1; moment <= stored + 1; moment++) {
                found.add(Arrays.asList(moment,
                    store.getOffsetInQueueByTime(topic, id, moment, BoundaryType.LOWER),
                    store.getOffsetInQueueByTime(topic, id, moment, BoundaryType.UPPER)));
            }
        }
        return found;
    }

    private Map<String, Object> keys(JSONArray wanted) {
        Map<String, Object> found = new TreeMap<>();
        for (int at = 0; at < wanted.size(); at++) {
            String[] parts = wanted.getString(at).split("#", 2);
            List<Long> places = new ArrayList<>();
            for (SelectMappedBufferResult each : store.queryMessage(
                parts[0], parts[1], MESSAGES_MAX, 0, Long.MAX_VALUE).getMessageMapedList()) {
                places.add(each.getStartOffset());
                each.release();
            }
            found.put(wanted.getString(at), places);
        }
        return found;
    }

    private static SocketAddress host(String hex) throws Exception {
        byte[] data = bytes(hex);
        ByteBuffer port = ByteBuffer.wrap(data, data.length - 4, 4);
        return new InetSocketAddress(
            InetAddress.getByAddress(Arrays.copyOf(data, data.length - 4)), port.getInt());
    }

    private static byte[] bytes(String hex) {
        byte[] data = new byte[hex.length() / 2];
        for (int at = 0; at < data.length; at++) {
            data[at] = (byte) Integer.parseInt(hex.substring(2 * at, 2 * at + 2), 16);
        }
        return data;
    }

    private static String hex(byte[] data) {
        StringBuilder text = new StringBuilder();
        for (byte each : data) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }

    public static void main(String[] args) {
        Report.begin();
        try {
            run(new Orders(args));
        } catch (Throwable wrong) {
            wrong.printStackTrace();
            Report.line("failed", "error", wrong.toString());
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(Orders orders) throws Exception {
        Path settingsFile = Paths.get(orders.text("settings"));
        JSONObject settings = JSON.parseObject(Files.readAllBytes(settingsFile));
        StoreJudge judge = new StoreJudge(orders.text("dir"), settings);
        Map<String, Object> report = new LinkedHashMap<>();
        report.put("put", judge.put(settings.getJSONArray("plan")));
        judge.waitForQueues();
        report.put("min", judge.store.getMinPhyOffset());
        report.put("max", judge.store.getMaxPhyOffset());
        report.put("messages", judge.messages());
        report.put("queues", judge.queues());
        report.put("keys", judge.keys(settings.getJSONArray("keys")));
        Files.write(Paths.get(orders.text("out")),
            JSON.toJSONString(report, JSONWriter.Feature.LargeObject)
                .getBytes(StandardCharsets.UTF_8));
        Report.line("done");
        if (Report.order() != null) { // else somebody ends us without a shutdown
            judge.store.shutdown();
        }
        Runtime.getRuntime().halt(0);
    }
}
