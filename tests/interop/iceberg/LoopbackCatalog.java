import java.net.InetSocketAddress;
import java.util.HashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** Iceberg's RESTCatalogServer, which has no setting for its address, on the loopback.
 *  Arguments: the port, and the catalog's properties as KEY=VALUE. */
public class LoopbackCatalog {
  public static void main(String[] words) throws Exception {
    var properties = new HashMap<String, String>();
    for (int i = 1; i < words.length; i++) {
      var pair = words[i].split("=", 2);
      properties.put(pair[0], pair[1]);
    }
    var catalog = CatalogUtil.buildIcebergCatalog("backend", properties, new Configuration());
    var servlet = new RESTCatalogServlet(new RESTCatalogAdapter(catalog));
    var context = new ServletContextHandler();
    context.addServlet(new ServletHolder(servlet), "/*");
    var server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0])));
    server.setHandler(context);
    server.start();
    System.out.println("ready");
    server.join();
  }
}
