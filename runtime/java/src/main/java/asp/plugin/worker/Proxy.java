package asp.plugin.worker;

import java.net.URI;
import java.util.Map;

/**
 * Makes the egress proxy of the environment the one that Java's clients use: java.net.http and HttpURLConnection read
 * system properties, not `HTTP_PROXY`.
 */
final class Proxy {
    private Proxy() {}

    /** Sets `http.proxyHost`, `https.proxyHost` and their ports; does nothing without a proxy. */
    static void apply(Map<String, String> environment) throws Exit.Refusal {
        set("http", first(environment, "HTTP_PROXY", "http_proxy"));
        set("https", first(environment, "HTTPS_PROXY", "https_proxy"));
    }

    private static String first(Map<String, String> environment, String upper, String lower) {
        return environment.getOrDefault(upper, environment.get(lower));
    }

    private static void set(String scheme, String proxy) throws Exit.Refusal {
        if (proxy == null || proxy.isEmpty()) {
            return;
        }
        URI uri;
        try {
            uri = URI.create(proxy);
        } catch (IllegalArgumentException fault) {
            throw new Exit.Refusal(Exit.WRONG_ENVIRONMENT, "the proxy is no URI");
        }
        if (uri.getHost() == null || uri.getPort() < 1) {
            throw new Exit.Refusal(Exit.WRONG_ENVIRONMENT, "the proxy has no host or port");
        }
        // Without it Java goes to localhost itself, which in a sandbox is the sandbox.
        System.setProperty("http.nonProxyHosts", "");
        System.setProperty(scheme + ".proxyHost", uri.getHost());
        System.setProperty(scheme + ".proxyPort", Integer.toString(uri.getPort()));
    }
}
