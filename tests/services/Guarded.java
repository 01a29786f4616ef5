import com.nimbusds.jose.JOSEObjectType;
import com.nimbusds.jose.JWSAlgorithm;
import com.nimbusds.jose.jwk.source.JWKSourceBuilder;
import com.nimbusds.jose.proc.DefaultJOSEObjectTypeVerifier;
import com.nimbusds.jose.proc.JWSVerificationKeySelector;
import com.nimbusds.jose.proc.SecurityContext;
import com.nimbusds.jose.util.DefaultResourceRetriever;
import com.nimbusds.jose.util.JSONObjectUtils;
import com.nimbusds.jwt.JWTClaimsSet;
import com.nimbusds.jwt.proc.DefaultJWTClaimsVerifier;
import com.nimbusds.jwt.proc.DefaultJWTProcessor;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** A service that takes a call only with the platform's token for it: as guarded.py, with Nimbus. */
public final class Guarded {
  private static final List<String> TOLD = List.of("sub", "org", "scope", "caller_issuer", "preferred_username");

  private static final int KEYS_WITHIN_MS = 30_000;
  private static final long KEYS_LAST_MS = 300_000;

  private final Path path;
  private DefaultJWTProcessor<SecurityContext> judge;

  private Guarded(Path path) {
    this.path = path;
  }

  public static void main(String[] arguments) throws Exception {
    var guarded = new Guarded(Path.of(arguments[0]));
    var server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
    server.setExecutor(Executors.newFixedThreadPool(4));
    server.createContext("/", guarded::answer);
    server.start();
    System.out.println(JSONObjectUtils.toJSONString(Map.of("port", server.getAddress().getPort())));
  }

  private void answer(HttpExchange exchange) throws java.io.IOException {
    try (exchange) {
      exchange.getRequestBody().readAllBytes();
      var names = exchange.getRequestHeaders().keySet().stream().map(name -> name.toLowerCase(Locale.ROOT)).toList();
      System.out.println(JSONObjectUtils.toJSONString(Map.of("seen", names)));
      int status = 200;
      Map<String, Object> answer = new HashMap<>();
      try {
        var claims = caller(exchange.getRequestHeaders().getFirst("authorization"));
        TOLD.forEach(name -> answer.put(name, claims.getClaim(name)));
      } catch (Exception error) {
        status = 401;
        answer.put("error", String.valueOf(error.getMessage()));
      }
      var body = JSONObjectUtils.toJSONString(answer).getBytes(StandardCharsets.UTF_8);
      exchange.getResponseHeaders().set("content-type", "application/json");
      exchange.sendResponseHeaders(status, body.length);
      exchange.getResponseBody().write(body);
    }
  }

  private JWTClaimsSet caller(String header) throws Exception {
    if (header == null || !header.regionMatches(true, 0, "Bearer ", 0, 7)) {
      throw new IllegalArgumentException("no bearer token");
    }
    return judge().process(header.substring(7), null);
  }

  private static Stream<String> listed(Map<String, Object> config, String name, String otherwise)
      throws java.text.ParseException {
    var listed = JSONObjectUtils.getStringList(config, name);
    return listed == null ? Stream.of(otherwise) : listed.stream();
  }

  private synchronized DefaultJWTProcessor<SecurityContext> judge() throws Exception {
    if (judge == null) {
      var config = JSONObjectUtils.parse(Files.readString(path));
      // By default it waits half a second, which an issuer on a busy machine does not keep to.
      var retriever = new DefaultResourceRetriever(KEYS_WITHIN_MS, KEYS_WITHIN_MS);
      var keys = JWKSourceBuilder.create(URI.create((String) config.get("keys")).toURL(), retriever)
          .cache(KEYS_LAST_MS, KEYS_WITHIN_MS)
          .build();
      var made = new DefaultJWTProcessor<SecurityContext>();
      var types = listed(config, "typ", "at+jwt").map(JOSEObjectType::new).collect(Collectors.toSet());
      var algorithms = listed(config, "algorithms", "ES256").map(JWSAlgorithm::parse).collect(Collectors.toSet());
      made.setJWSTypeVerifier(new DefaultJOSEObjectTypeVerifier<>(types));
      made.setJWSKeySelector(new JWSVerificationKeySelector<>(algorithms, keys));
      made.setJWTClaimsSetVerifier(new DefaultJWTClaimsVerifier<>(
          (String) config.get("audience"),
          new JWTClaimsSet.Builder().issuer((String) config.get("issuer")).build(),
          Set.of("exp", "iat", "sub")));
      judge = made;
    }
    return judge;
  }
}
