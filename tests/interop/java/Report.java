import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * What a program tells its caller: one JSON object a line on standard output, nothing else there.
 * Everything that RocketMQ prints goes to standard error. Orders come in as lines on standard input.
 */
final class Report {
    /** How long a send may take: the client's own 3 s are short on a machine with much else to do. */
    static final int SEND_MS = 30_000;
    private static final PrintStream OUT = System.out;
    private static final BufferedReader IN =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private Report() {
    }

    /** Keeps standard output to ourselves; call it first. */
    static void begin() {
        System.setOut(System.err);
    }

    /** Prints {"event": event, key: value, ...}. */
    static void line(String event, Object... pairs) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("event", event);
        for (int at = 0; at < pairs.length; at += 2) {
            fields.put((String) pairs[at], pairs[at + 1]);
        }
        String text = JSON.toJSONString(fields);
        synchronized (OUT) {
            OUT.println(text);
            OUT.flush();
        }
    }

    /** The next line on standard input, or null when the caller has closed it. */
    static String order() throws java.io.IOException {
        return IN.readLine();
    }
}
