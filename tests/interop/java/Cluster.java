import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.controller.ControllerManager;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.namesrv.NamesrvStartup;

/**
 * The real name server and the real broker, by their own start-up classes. Either may be left out.
 * Ready means that the name server shows the broker: on a busy machine its first registration can
 * find no name server connected yet, and its next one comes ten seconds later.
 * Stops both in order when standard input ends; kill -9 is a real crash. On the order "sync" a slave
 * copies its master's tables.
 *
 * --namesrv FILE --broker FILE (properties files as mqnamesrv and mqbroker read them)
 */
public final class Cluster {
    private static final long REGISTERED_MS = 50_000;

    public static void main(String[] args) throws Exception {
        Report.begin();
        Orders orders = new Orders(args);
        String namesrvFile = orders.text("namesrv", null);
        String brokerFile = orders.text("broker", null);
        NamesrvController namesrv = namesrvFile == null ? null
            : NamesrvStartup.main0(new String[] {"-c", namesrvFile});
        // With enableControllerInNamesrv=true in the file the name server holds a controller.
        ControllerManager controller = namesrvFile == null ? null
            : NamesrvStartup.controllerManagerMain();
        BrokerController broker = brokerFile == null ? null
            : BrokerStartup.start(
                BrokerStartup.createBrokerController(new String[] {"-c", brokerFile}));
        if (broker != null) {
            waitUntilRegistered(broker);
        }
        Report.line("ready", "pid", ProcessHandle.current().pid(),
            "broker", broker == null ? null : broker.getBrokerAddr());
        String order;
        while ((order = Report.order()) != null) {
            if (order.equals("sync") && broker != null) {
                // A slave does it by itself, but for the first time after a minute.
                broker.getSlaveSynchronize().syncAll();
                Report.line("synced", "master", broker.getSlaveSynchronize().getMasterAddr());
            } else {
                Report.line("unknown");
            }
        }
        if (broker != null) {
            broker.shutdown();
        }
        if (controller != null) {
            controller.shutdown();
        }
        if (namesrv != null) {
            namesrv.shutdown();
        }
        Report.line("stopped");
        Runtime.getRuntime().halt(0);
    }

    private static void waitUntilRegistered(BrokerController broker) throws Exception {
        long deadline = System.currentTimeMillis() + REGISTERED_MS;
        String name = broker.getBrokerConfig().getBrokerName();
        while (!isRegistered(broker, name)) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("no name server knows broker " + name + " after "
                    + REGISTERED_MS + " ms");
            }
            Thread.sleep(50);
            broker.registerBrokerAll(true, false, true);
        }
    }

    private static boolean isRegistered(BrokerController broker, String name) {
        try {
            return broker.getBrokerOuterAPI().getBrokerClusterInfo().getBrokerAddrTable()
                .get(name).getBrokerAddrs().containsValue(broker.getBrokerAddr());
        } catch (Exception notYet) {
            return false;
        }
    }
}
