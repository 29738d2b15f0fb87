import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * The real mqadmin, many commands in one JVM: each line on standard input is one command with its
 * words separated by tabs; its whole output comes back as one report. A command line that mqadmin
 * refuses ends this program, as it ends mqadmin: the caller sees the end of the output.
 */
public final class Admin {
    public static void main(String[] args) throws Exception {
        Report.begin();
        Report.line("started");
        PrintStream before = System.err;
        String order;
        while ((order = Report.order()) != null) {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            PrintStream caught = new PrintStream(bytes, true, StandardCharsets.UTF_8);
            System.setOut(caught);
            System.setErr(caught);
            MQAdminStartup.main0(order.split("\t"), null);
            System.setOut(before);
            System.setErr(before);
            Report.line("output", "text", bytes.toString(StandardCharsets.UTF_8));
        }
        Runtime.getRuntime().halt(0);
    }
}
