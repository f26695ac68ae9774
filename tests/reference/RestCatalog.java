import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.util.EnumSet;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.servlet.FilterHolder;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/**
 * A REST catalog for tests: what Iceberg itself has for that, over its JDBC catalog in SQLite.
 * Arguments: a directory for tables and catalog, and the token that requests have to show. Prints
 * its port, and ends when its standard input does.
 */
public final class RestCatalog {
  public static void main(String[] arguments) throws Exception {
    PrintStream told = System.out;
    System.setOut(System.err); // What is logged: nobody reads the pipe after its first line.
    String directory = arguments[0];
    Map<String, String> properties =
        Map.of(
            "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri", "jdbc:sqlite:" + directory + "/catalog.db",
            "jdbc.schema-version", "V1",
            "clients", "1", // SQLite takes one writer.
            "warehouse", "file://" + directory + "/lake");
    var catalog = CatalogUtil.buildIcebergCatalog("tests", properties, new Configuration());
    var context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    var servlet = new RESTCatalogServlet(new RESTCatalogAdapter(catalog));
    context.addServlet(new ServletHolder(servlet), "/*");
    var known = new FilterHolder(new Known("Bearer " + arguments[1]));
    context.addFilter(known, "/*", EnumSet.of(DispatcherType.REQUEST));
    var server = new Server(new InetSocketAddress("127.0.0.1", 0));
    server.setHandler(context);
    server.start();
    told.println(((ServerConnector) server.getConnectors()[0]).getLocalPort());
    while (System.in.read() >= 0) {}
    System.exit(0);
  }

  /** Who shows another token is answered as the specification of REST catalogs has it. */
  private record Known(String authorization) implements Filter {
    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain next)
        throws IOException, ServletException {
      if (authorization.equals(((HttpServletRequest) request).getHeader("Authorization"))) {
        next.doFilter(request, response);
        return;
      }
      ((HttpServletResponse) response).setStatus(401);
      response.setContentType("application/json");
      response
          .getWriter()
          .print(
              "{\"error\": {\"message\": \"who are you?\", \"type\": \"NotAuthorizedException\","
                  + " \"code\": 401}}");
    }
  }
}
