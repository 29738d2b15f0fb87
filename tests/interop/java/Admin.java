import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * The real mqadmin, many commands in one JVM: each line on standard input is one command with its
 * words separated by tabs; its whole output comes back as one report. A question mark asks for the
 * names of all commands. A command line that mqadmin refuses ends this program, as it ends mqadmin:
 * the caller sees the end of the output.
 */
public final class Admin {
    public static void main(String[] args) throws Exception {
        Report.begin();
        Thread main = Thread.currentThread();
        Thread hurry = new Thread(() -> hurry(main));
        hurry.setDaemon(true);
        hurry.start();
        Report.line("started");
        PrintStream before = System.err;
        String order;
        while ((order = Report.order()) != null) {
            if (order.equals("?")) {
                Report.line("commands", "names", Commands.names());
                continue;
            }
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            PrintStream caught = new PrintStream(bytes, true, StandardCharsets.UTF_8);
            System.setOut(caught);
            System.setErr(caught);
            // A command object keeps its closed producer: the next command needs new ones.
            Commands.forget();
            MQAdminStartup.main0(order.split("\t"), null);
            System.setOut(before);
            System.setErr(before);
            Report.line("output", "text", bytes.toString(StandardCharsets.UTF_8));
        }
        Runtime.getRuntime().halt(0);
    }

    /**
     * A client that closes waits until its event thread next looks up, three seconds. An interrupt
     * makes that thread look at once, so that a story of forty commands is not two minutes. Only
     * while main waits in there: before, it would break a request that the thread has under way.
     */
    private static void hurry(Thread main) {
        Thread[] threads = new Thread[256];
        while (true) {
            boolean closing = Arrays.stream(main.getStackTrace())
                .anyMatch(frame -> frame.getClassName().endsWith(".ServiceThread")
                    && frame.getMethodName().equals("shutdown"));
            int count = closing ? Thread.enumerate(threads) : 0;
            for (int at = 0; at < count; at++) {
                if (threads[at].getName().startsWith("NettyEventExecutor")) {
                    threads[at].interrupt();
                }
            }
            LockSupport.parkNanos(50_000_000);
        }
    }

    /** mqadmin keeps its list of commands to itself and its heirs, under a name that changed. */
    private static final class Commands extends MQAdminStartup {
        static void forget() throws IllegalAccessException {
            commands().clear();
        }

        static List<String> names() throws IllegalAccessException {
            forget();
            initCommand();
            return commands().stream().map(SubCommand::commandName).collect(Collectors.toList());
        }

        @SuppressWarnings("unchecked")
        private static List<SubCommand> commands() throws IllegalAccessException {
            for (Field field : MQAdminStartup.class.getDeclaredFields()) {
                if (field.getType() == List.class) {
                    field.setAccessible(true);
                    return (List<SubCommand>) field.get(null);
                }
            }
            throw new IllegalStateException("mqadmin has no list of its commands");
        }
    }
}
