import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.SupportsNamespaces;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NamespaceNotEmptyException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.exceptions.NotAuthorizedException;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.RESTCatalogProperties.SnapshotMode;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.RESTUtil;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.RegisterTableRequest;
import org.apache.iceberg.rest.requests.RenameTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.ConfigResponse;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.rest.responses.OAuthTokenResponse;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.JsonAutoDetect.Visibility;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.PropertyAccessor;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.PropertyNamingStrategies;

/**
 * An Iceberg REST catalog for tests: Iceberg's own handlers of the protocol (`CatalogHandlers`) over its JDBC catalog,
 * behind the JDK's HTTP server. Arguments: port, client id, client secret, token, folder, then the catalog's properties
 * (`name=value`). A file `halt-after-commit` in the folder: the next commit is made, and the server dies unanswered.
 */
public class IcebergRestServer {
  private static final ObjectMapper JSON = mapper();
  private static final Map<String, String> UNKNOWN_CLIENT = Map.of("error", "invalid_client");
  private static Catalog catalog;
  private static String client;
  private static String token;
  private static Path folder;

  public static void main(String[] args) throws IOException {
    client = args[1] + ":" + args[2];
    token = args[3];
    folder = Path.of(args[4]);
    Map<String, String> properties = new HashMap<>();
    for (String one : Arrays.copyOfRange(args, 5, args.length)) {
      properties.put(one.substring(0, one.indexOf('=')), one.substring(one.indexOf('=') + 1));
    }
    catalog = CatalogUtil.buildIcebergCatalog("served", properties, new Configuration());
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 64);
    server.setExecutor(Executors.newFixedThreadPool(8));
    server.createContext("/", IcebergRestServer::serve);
    server.start();
  }

  private static ObjectMapper mapper() {
    ObjectMapper made = new ObjectMapper();
    made.setVisibility(PropertyAccessor.FIELD, Visibility.ANY);
    made.configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
    made.setPropertyNamingStrategy(PropertyNamingStrategies.KEBAB_CASE);
    RESTSerializers.registerAll(made);
    return made;
  }

  private static void serve(HttpExchange http) throws IOException {
    int code = 200;
    Object answer;
    try {
      answer = answer(http);
      code = answer == null ? 204 : 200;
      if (answer == UNKNOWN_CLIENT) {
        code = 401;
      }
    } catch (Exception error) {
      code = code(error);
      System.out.println(http.getRequestMethod() + " " + http.getRequestURI() + ": " + error);
      answer =
          ErrorResponse.builder()
              .responseCode(code)
              .withType(error.getClass().getSimpleName())
              .withMessage(String.valueOf(error.getMessage()))
              .build();
    }
    byte[] body = answer == null ? new byte[0] : JSON.writeValueAsBytes(answer);
    boolean none = body.length == 0 || http.getRequestMethod().equals("HEAD");
    http.getResponseHeaders().set("Content-Type", "application/json");
    http.sendResponseHeaders(code, none ? -1 : body.length);
    if (!none) {
      http.getResponseBody().write(body);
    }
    http.close();
  }

  private static int code(Exception error) {
    if (error instanceof NotAuthorizedException) {
      return 401;
    }
    if (error instanceof NoSuchTableException || error instanceof NoSuchNamespaceException) {
      return 404;
    }
    if (error instanceof CommitFailedException
        || error instanceof AlreadyExistsException
        || error instanceof NamespaceNotEmptyException) {
      return 409;
    }
    return error instanceof IllegalArgumentException || error instanceof ValidationException ? 400 : 500;
  }

  private static Object answer(HttpExchange http) throws IOException {
    String body = new String(http.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
    String path = http.getRequestURI().getRawPath().replaceFirst("^/+v1/", "");
    if (path.equals("oauth/tokens")) {
      return exchanged(RESTUtil.decodeFormData(body));
    }
    if (!("Bearer " + token).equals(http.getRequestHeaders().getFirst("Authorization"))) {
      throw new NotAuthorizedException("the token is missing or wrong");
    }
    if (path.equals("config")) {
      return ConfigResponse.builder().build();
    }
    String[] parts = path.split("/");
    String method = http.getRequestMethod();
    Map<String, String> query = query(http.getRequestURI().getRawQuery());
    if (path.equals("tables/rename")) {
      CatalogHandlers.renameTable(catalog, JSON.readValue(body, RenameTableRequest.class));
      return null;
    }
    return parts.length < 3 ? namespaces(method, parts, query, body) : tables(method, parts, query, body);
  }

  private static Object exchanged(Map<String, String> form) {
    if (!client.equals(form.get("client_id") + ":" + form.get("client_secret"))) {
      return UNKNOWN_CLIENT;
    }
    return OAuthTokenResponse.builder().withToken(token).withTokenType("bearer").setExpirationInSeconds(3600).build();
  }

  private static Object namespaces(String method, String[] parts, Map<String, String> query, String body)
      throws IOException {
    SupportsNamespaces all = (SupportsNamespaces) catalog;
    if (parts.length == 1 && method.equals("POST")) {
      return CatalogHandlers.createNamespace(all, JSON.readValue(body, CreateNamespaceRequest.class));
    }
    if (parts.length == 1) {
      String parent = query.get("parent");
      return CatalogHandlers.listNamespaces(
          all, parent == null ? Namespace.empty() : RESTUtil.namespaceFromQueryParam(parent));
    }
    Namespace named = namespace(parts[1]);
    switch (method) {
      case "HEAD":
        CatalogHandlers.namespaceExists(all, named);
        return null;
      case "DELETE":
        CatalogHandlers.dropNamespace(all, named);
        return null;
      default:
        return CatalogHandlers.loadNamespace(all, named);
    }
  }

  private static Object tables(String method, String[] parts, Map<String, String> query, String body)
      throws IOException {
    Namespace named = namespace(parts[1]);
    if (parts[2].equals("register")) {
      return CatalogHandlers.registerTable(catalog, named, JSON.readValue(body, RegisterTableRequest.class));
    }
    if (parts.length == 3 && method.equals("POST")) {
      CreateTableRequest request = JSON.readValue(body, CreateTableRequest.class);
      return request.stageCreate()
          ? CatalogHandlers.stageTableCreate(catalog, named, request)
          : CatalogHandlers.createTable(catalog, named, request);
    }
    if (parts.length == 3) {
      return CatalogHandlers.listTables(catalog, named);
    }
    TableIdentifier table = TableIdentifier.of(named, RESTUtil.decodePathSegment(parts[3]));
    if (parts.length == 5) {
      return null; // metrics of a scan or a commit
    }
    switch (method) {
      case "HEAD":
        CatalogHandlers.tableExists(catalog, table);
        return null;
      case "DELETE":
        if ("true".equals(query.get("purgeRequested"))) {
          CatalogHandlers.purgeTable(catalog, table);
        } else {
          CatalogHandlers.dropTable(catalog, table);
        }
        return null;
      case "POST":
        Object done = CatalogHandlers.updateTable(catalog, table, JSON.readValue(body, UpdateTableRequest.class));
        if (Files.deleteIfExists(folder.resolve("halt-after-commit"))) {
          Runtime.getRuntime().halt(9);
        }
        return done;
      default:
        return CatalogHandlers.loadTable(
            catalog, table, "refs".equals(query.get("snapshots")) ? SnapshotMode.REFS : SnapshotMode.ALL);
    }
  }

  private static Namespace namespace(String part) {
    return RESTUtil.decodeNamespaceAsPathSegment(part, "%1F");
  }

  private static Map<String, String> query(String raw) {
    Map<String, String> found = new LinkedHashMap<>();
    for (String one : raw == null ? List.<String>of() : List.of(raw.split("&"))) {
      String[] pair = one.split("=", 2);
      found.put(pair[0], pair.length < 2 ? "" : RESTUtil.decodeString(pair[1]));
    }
    return found;
  }
}
